//! Connections of `larder load` and `larder trace replay` to an NBD export.

use larder_io::nbd_client::{Client, ClientError, Errno, Request};
use larder_io::nbd_wire as wire;
use larder_lab::connection::{BlockRequest, Connection, ConnectionError, Reply};
use larder_lab::trace::Op;
use std::time::Duration;

/// A connection, and the cookie and the value of each request in flight.
#[derive(Debug)]
pub(crate) struct NbdConnection<T> {
    client: Client,
    in_flight: Vec<(u64, T)>,
}

impl<T> NbdConnection<T> {
    pub(crate) fn new(client: Client) -> Self {
        NbdConnection { client, in_flight: Vec::new() }
    }
}

fn connection_error(error: &ClientError) -> ConnectionError {
    let is_closed = matches!(error, ClientError::Closed);
    ConnectionError { text: error.to_string(), is_closed }
}

impl<T: Send> Connection<T> for NbdConnection<T> {
    fn submit(&mut self, request: BlockRequest, context: T) -> Result<(), ConnectionError> {
        let BlockRequest { op, offset, len, fua, data } = request;
        let request = match op {
            Op::Read => Request::read(offset, data),
            Op::Write => Request::write(offset, data),
            Op::Flush => Request::flush(),
            Op::Discard => Request::trim(offset, len),
            Op::Zero => Request::write_zeroes(offset, len),
        };
        let flags = if fua { wire::CMD_FLAG_FUA } else { 0 };
        let cookie = self
            .client
            .submit(request.with_flags(flags))
            .map_err(|error| connection_error(&error))?;
        self.in_flight.push((cookie, context));
        Ok(())
    }

    fn in_flight<'a>(&'a self) -> impl ExactSizeIterator<Item = &'a T>
    where
        T: 'a,
    {
        self.in_flight.iter().map(|(_, context)| context)
    }

    fn receive(&mut self, time: Option<Duration>) -> Result<Option<Reply<T>>, ConnectionError> {
        let completion = match time {
            None => Some(self.client.wait()),
            Some(time) => self.client.wait_for(time).transpose(),
        };
        let Some(completion) = completion.transpose().map_err(|error| connection_error(&error))?
        else {
            return Ok(None);
        };
        let at = self.in_flight.iter().position(|(cookie, _)| *cookie == completion.cookie);
        let (_, context) = self.in_flight.swap_remove(at.ok_or_else(|| ConnectionError {
            text: "match an answer with a request".to_owned(),
            is_closed: false,
        })?);
        let error = completion.result.err().map(|error| ConnectionError {
            text: error.to_string(),
            is_closed: error.errno == Errno::Shutdown,
        });
        Ok(Some(Reply { context, error, data: completion.data }))
    }

    fn wait_any(connections: &[&Self], time: Duration) -> Result<(), ConnectionError> {
        let clients: Vec<_> = connections.iter().map(|connection| &connection.client).collect();
        Client::wait_any(&clients, Some(time)).map_err(|error| connection_error(&error))
    }
}
