//! Addresses that other hosts can reach.

use crate::settings::ServerSettings;
use larder_io::front::nbd::ListenAddress;

/// Returns a warning if clients on other hosts need no certificate for this address.
pub(super) fn warning(address: &ListenAddress, settings: &ServerSettings) -> Option<String> {
    let ListenAddress::Tcp(socket) = address else { return None };
    let checks_clients =
        settings.tls.is_some() && settings.tls_verify_peer && !settings.allows_plain_clients;
    (!socket.ip().is_loopback() && !checks_clients).then(|| {
        format!(
            "every host that reaches {address} can read and write the volumes (add --tls and \
             --tls-verify-peer, or listen on 127.0.0.1 or a unix socket)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_other_hosts_is_safe_only_with_certificates_of_clients() {
        let open = ListenAddress::Tcp("0.0.0.0:10809".parse().unwrap());
        let local = ListenAddress::Tcp("[::1]:10809".parse().unwrap());
        let unix = ListenAddress::Unix("/run/larder/a.sock".into());
        let plain = ServerSettings::default();
        let encrypted = ServerSettings { tls: Some("/etc/tls".into()), ..plain.clone() };
        let verified = ServerSettings { tls_verify_peer: true, ..encrypted.clone() };
        let allowed = ServerSettings { allows_plain_clients: true, ..verified.clone() };
        for settings in [&plain, &encrypted, &allowed] {
            let text = warning(&open, settings).unwrap();
            assert!(text.contains("every host that reaches tcp:0.0.0.0:10809"), "{text}");
            assert_eq!(warning(&local, settings), None);
            assert_eq!(warning(&unix, settings), None);
        }
        assert_eq!(warning(&open, &verified), None);
    }
}
