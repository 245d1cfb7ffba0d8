# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_larder_global_optspecs
    string join \n h/help V/version
end

function __fish_larder_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_larder_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_larder_using_subcommand
    set -l cmd (__fish_larder_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c larder -n "__fish_larder_needs_command" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_needs_command" -s V -l version -d 'Print version'
complete -c larder -n "__fish_larder_needs_command" -f -a "serve" -d 'Serve volumes with a cache: over NBD, as files, as block devices'
complete -c larder -n "__fish_larder_needs_command" -f -a "mount" -d 'Mount a directory once more, with a cache for what is in its files'
complete -c larder -n "__fish_larder_needs_command" -f -a "ctl" -d 'Ask a running server, and change it'
complete -c larder -n "__fish_larder_needs_command" -f -a "check-config" -d 'Check a configuration file of larder serve'
complete -c larder -n "__fish_larder_needs_command" -f -a "demo" -d 'Show the whole in a minute: an image, a cache, a workload, with and without'
complete -c larder -n "__fish_larder_needs_command" -f -a "trace" -d 'Convert, summarise, cut, merge, make and replay traces of requests'
complete -c larder -n "__fish_larder_needs_command" -f -a "size" -d 'How much cache a trace needs: size, policy, pages, and what half or twice would do'
complete -c larder -n "__fish_larder_needs_command" -f -a "sim" -d 'Simulate caches over traces: hit ratios by policy and size, and curves'
complete -c larder -n "__fish_larder_needs_command" -f -a "watch" -d 'See what the host\'s own file cache does, by file and process'
complete -c larder -n "__fish_larder_needs_command" -f -a "resident" -d 'Say what of files and directories is in memory'
complete -c larder -n "__fish_larder_needs_command" -f -a "bench" -d 'Run a benchmark, the result of which can be believed and compared'
complete -c larder -n "__fish_larder_needs_command" -f -a "try" -d 'What a cache would gain in a directory: the same work natively and through a temporary one'
complete -c larder -n "__fish_larder_needs_command" -f -a "compare" -d 'Compare two runs: better, worse, or cannot tell'
complete -c larder -n "__fish_larder_needs_command" -f -a "report" -d 'Show a run: text, CSV, JSON, or a page with charts'
complete -c larder -n "__fish_larder_needs_command" -f -a "top" -d 'Files, processes, disks and caches of this machine, live'
complete -c larder -n "__fish_larder_using_subcommand serve" -l config -d 'Read flags and volumes from this file (docs/config.md) as well; those of the command line go before its own. SIGHUP reads it again' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l memory -d 'Memory of the cache, with everything that goes with it, shared by all volumes' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l listen -d 'Where to listen: unix:PATH or tcp:ADDRESS:PORT. Without it, a socket in the runtime directory' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l send-timeout -d 'Close a connection whose client receives none of its waiting replies for this time' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l fuse -d 'Show each volume as a file in this empty directory, by FUSE, for loop devices and mounts' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l tls -d 'Speak TLS, with server-cert.pem and server-key.pem of this directory' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l tls-mode -d 'What becomes of clients that do not speak TLS: require refuses them, allow serves them' -r -f -a "require\t''
allow\t''"
complete -c larder -n "__fish_larder_using_subcommand serve" -l record -d 'Record every answered request into a new trace' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l record-inputs -d 'Record every input of the cache into a new file, which larder sim --level inputs replays. Serving is slower' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l page-size -d 'Unit of replacement, 4KiB to 1MiB [default: 4KiB]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l policy -d 'Replacement policy: random, fifo, lru, clock, 2q, slru, arc, lirs, s3fifo, sieve, wtinylfu, clock2q+, linux; or auto, which changes it for one that hits clearly more [default: s3fifo]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l share -d 'Whose page goes when another volume needs room: coldest (the one not used for longest, whosever it is), or auto (each volume has a part, and parts move to where they hit most)' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l min -d 'Memory that other volumes cannot take from a volume' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l max -d 'Memory that a volume never exceeds, or all' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l read-ahead -d 'The most that is read ahead of a stream at a time, or "off" [default: 1MiB]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l hint -d 'How a volume will be read: normal, sequential (once and in order), random (nothing is read ahead), no-buffering (its clients have a cache of their own) [default: normal]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l give-back -d 'Give memory back, down to FLOOR and what volumes are promised, while the system is short of it, and take it again later' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l write-mode -d 'What a write does before it is acknowledged: back (it is in the cache), through (and in the store), around (in the store only), read-only [default: back]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l flush -d 'What a flush does: keep its promise, or ignore it, which loses what a crash finds unwritten [default: keep]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l preset -d 'Constants of the lazy writer: larder, or nt for those of the Windows NT file cache [default: larder]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l set -d 'Set a tunable (docs/TUNABLES.md)' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l counters -d 'Write the counters as JSON to this file on SIGUSR1 and at the end, replacing it' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l control -d 'Socket for larder ctl, or none [default: in the runtime directory, where ctl looks]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l control-tcp -d 'Be controlled over TCP as well, from this machine only; needs --control-token' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l control-token -d 'File whose one line must be shown by whoever controls over TCP; for its owner\'s eyes only' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l warm-list -d 'Directory for lists of what is cached, which is read back at the next start, or none [default: the directory for state that a service manager gives, else none]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l warm-list-every -d 'How often the lists are saved besides at the end, or off' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l tls-verify-peer -d 'Refuse clients without a certificate that ca-cert.pem of the directory vouches for'
complete -c larder -n "__fish_larder_using_subcommand serve" -l lock -d 'Lock the memory, so that it is never swapped out'
complete -c larder -n "__fish_larder_using_subcommand serve" -l plain-io -d 'Use plain system calls even where io_uring is there'
complete -c larder -n "__fish_larder_using_subcommand serve" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand mount" -l memory -d 'Memory of the cache, with everything that goes with it' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -s o -l options -d 'Restrictions of the mount in addition to those of SOURCE\'s mount, which always apply: nosuid, nodev, noexec, nosymfollow, separated by commas' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l ttl -d 'Maximum age of names and attributes that are used without asking SOURCE, and of cached data where changes by others are not reported' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l rule -d 'Files that are handled in another way, by their name or by where they are: GLOB and words for hint, write mode, page size, pin, no-cache, kernel-pages=off|open|keep; what is left out is as for all files. Of several rules the first that matches a file counts (docs/mount.md)' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l page-size -d 'Unit of replacement, 4KiB to 1MiB [default: 4KiB]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l policy -d 'Replacement policy, or auto; see larder serve [default: s3fifo]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l read-ahead -d 'The most that is read ahead of a stream at a time, or "off" [default: 1MiB]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l hint -d 'How files will be read: normal, sequential, random, no-buffering [default: normal]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l give-back -d 'Give memory back, down to FLOOR, while the system is short of it, and take it again later' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l write-mode -d 'What a write does before it returns: back (it is in the cache), through (and in the directory), around (in the directory only), read-only [default: back]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l flush -d 'What fsync does: keep its promise, or ignore it, which loses what a crash finds unwritten [default: keep]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l preset -d 'Constants of the lazy writer: larder, or nt [default: larder]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l set -d 'Set a tunable (docs/TUNABLES.md)' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l counters -d 'Write the counters as JSON to this file on SIGUSR1 and at the end, replacing it' -r -F
complete -c larder -n "__fish_larder_using_subcommand mount" -l record-inputs -d 'Record every input of the cache into a new file, which larder sim --level inputs replays. Serving is slower' -r -F
complete -c larder -n "__fish_larder_using_subcommand mount" -l control -d 'Socket for larder ctl, or none [default: in the runtime directory]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l control-tcp -d 'Be controlled over TCP as well, from this machine only; needs --control-token' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l control-token -d 'File whose one line must be shown by whoever controls over TCP; for its owner\'s eyes only' -r -F
complete -c larder -n "__fish_larder_using_subcommand mount" -l allow-other -d 'Let all users in, as the modes of files say, and not only who mounts'
complete -c larder -n "__fish_larder_using_subcommand mount" -l shared -d 'Others change the directory too: the kernel tells what they change, which takes root; else nothing about names and attributes is believed without asking, as with --ttl 0s'
complete -c larder -n "__fish_larder_using_subcommand mount" -l lock -d 'Lock the memory, so that it is never swapped out'
complete -c larder -n "__fish_larder_using_subcommand mount" -l plain-io -d 'Use plain system calls even where io_uring is there'
complete -c larder -n "__fish_larder_using_subcommand mount" -l while-input -d 'End as SIGTERM asks when standard input ends: for a program that mounts for itself'
complete -c larder -n "__fish_larder_using_subcommand mount" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "stats" -d 'What clients asked for, what the cache made of it, and what the stores did'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "volumes" -d 'The volumes and their settings'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "curve" -d 'The hit-ratio curve of each volume, its regions, what other policies would hit, and what to do about it'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "files" -d 'The files of a mounted directory with most in the cache: resident, dirty, reads that hit'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "at-risk" -d 'What a crash now would lose, and what cannot be written; exit code 1 if there is such'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "metrics" -d 'Everything as OpenMetrics, as Prometheus gets it'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "set" -d 'Change settings while it serves: all of these or none'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "flush" -d 'Write everything dirty to the stores and flush them, without stopping'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "warm" -d 'Read ranges of a volume into the cache before they are asked for'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "add" -d 'Serve one more volume, with the flags of the server that hold for all volumes'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "remove" -d 'Write everything of a volume and serve it no more'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "drop" -d 'Forget what is clean; what is dirty stays'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "freeze" -d 'Let nothing enter the cache and nothing leave it for what is asked of a volume'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "unfreeze" -d 'End that'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "pin" -d 'Read ranges of a volume in and keep them in the cache until they are unpinned'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "unpin" -d 'Let pinned ranges go when they are the coldest'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "stop" -d 'Write everything and end the server, as SIGTERM does, and wait for it'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l all -d 'Every counter, gauge and latency instead'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l places -d 'Where their stores and exports are instead'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l top -d 'So many of them, however they are printed' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l disconnect -d 'Let go of its clients, once what they have asked is answered, instead of refusing'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l give-up -d 'Discard unwritten data, instead of keeping a volume that cannot be written out'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Without it, the only one that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -l format -d 'How to print' -r -f -a "text\t'For people'
json\t'What the server says, as it is'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -l watch -d 'Ask again and again, this far apart: rates of each interval and what they add up to' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand check-config" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand demo" -l memory -d 'Memory of the cache' -r
complete -c larder -n "__fish_larder_using_subcommand demo" -l directory -d 'Where the image is made: a directory on the disk to be shown' -r -F
complete -c larder -n "__fish_larder_using_subcommand demo" -l seconds -d 'Seconds of each of the eight trials; the second half of each is measured' -r
complete -c larder -n "__fish_larder_using_subcommand demo" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "convert" -d 'Write one or more traces, one after the other, in another format'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "summary" -d 'Say what a trace is: requests, bytes, footprint, sizes, times'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "head" -d 'Print the first requests as CSV'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "filter" -d 'Keep the requests that are wanted'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "merge" -d 'Write several traces as one, in the order of their times'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "synth" -d 'Make a trace from a pattern and a seed'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "record" -d 'Record what programs on this machine read and write through its file cache'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "replay" -d 'Ask an export for what a trace says, and measure the answers'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from convert" -l to -d 'The format to write; by the end of the name if not given, else larder' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from convert" -l format -d 'The format of the traces; told by content, else by the end of the name, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from convert" -l max-bad -d 'Bad records that are passed over before it is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from convert" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from summary" -l format -d 'The format of the traces; told by content, else by the end of the name, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from summary" -l max-bad -d 'Bad records that are passed over before it is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from summary" -l json -d 'Print JSON instead of text'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from summary" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from head" -s n -l requests -d 'How many requests' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from head" -l format -d 'The format of the traces; told by content, else by the end of the name, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from head" -l max-bad -d 'Bad records that are passed over before it is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from head" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l to-format -d 'The format to write; by the end of the name if not given, else larder' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l volume -d 'Volumes to keep, by name, or by number if they have none; may be given several times' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l file -d 'Files to keep' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l process -d 'Processes to keep' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l op -d 'Operations to keep: read, write, flush, discard, zero' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l from -d 'The first time to keep, since the beginning of the trace, as 90s, 5m, 1.5h, 20ms' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l to -d 'The time at which to end' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l range -d 'Offsets to keep what touches them, as 1GiB..2GiB or 4096..8192; an end may be missing' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l format -d 'The format of the traces; told by content, else by the end of the name, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l max-bad -d 'Bad records that are passed over before it is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from merge" -l to -d 'The format to write; by the end of the name if not given, else larder' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from merge" -l format -d 'The format of the traces; told by content, else by the end of the name, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from merge" -l max-bad -d 'Bad records that are passed over before it is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from merge" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l to -d 'The format to write; by the end of the name if not given, else larder' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l requests -d 'Requests in all' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l pages -d 'Pages of the volume' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l page-size -d 'Bytes of a page; each request is one, but for the reports of a database' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l exponent -d 'The exponent of Zipf\'s law: 0.6 is flat, 1.2 is steep' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l writes -d 'The share of writes, in per cent; of transactions that write, in a database' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l rate -d 'Requests per second' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l seed -d 'Where all random numbers come from' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from record" -l pid -d 'Only this process and those that it makes' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from record" -l cgroup -d 'Only the processes of this control group, by its path below the root of the groups' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from record" -l for -d 'How long; until Ctrl-C, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from record" -l sample -d 'Keep one page of so many, by a hash of its file and number. The trace says so, and `larder size` answers for all of them' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from record" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l to -d 'The export to replay to, if the trace has one volume' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l volume -d 'The export of one volume of the trace, by name, or by number if it has none; may be given several times' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l speed -d 'Ask when the trace says, so many times as fast; without it, as fast as answers come' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l connections -d 'Connections to each export' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l depth -d 'Requests in flight on each connection; 1 if not given, 32 with --speed' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l format -d 'The format of the traces; told by content, else by the end of the name, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l max-bad -d 'Bad records that are passed over before it is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l wrap -d 'Fold offsets beyond the end of an export into it'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l read-only -d 'Leave out what writes, discards or zeroes'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l json -d 'Print JSON instead of text'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand size" -l target -d 'How much of what can hit at all shall hit: a share of the hits of a cache for everything' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l budget -d 'The most memory, tables of the cache included' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l policy -d 'Policies to choose from, separated by commas; all of them, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l html -d 'Write a page with charts as well, one file that needs nothing else' -r -F
complete -c larder -n "__fish_larder_using_subcommand size" -l format -d 'How to print the result' -r -f -a "text\t''
json\t''"
complete -c larder -n "__fish_larder_using_subcommand size" -l seed -d 'Where the random choices of samples come from' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l threads -d 'Threads; as many as there are cores, if not given. The result does not depend on it' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l for -d 'How long; until Ctrl-C, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l pid -d 'Only this process and those that it makes' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l cgroup -d 'Only the processes of this control group' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l trace-format -d 'The format of the trace; told by content, else by the end of the name, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l max-bad -d 'Bad records that are passed over before it is an error' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l json -d 'The same as --format json'
complete -c larder -n "__fish_larder_using_subcommand size" -l sampled -d 'Estimate everything from samples, and count nothing over the whole trace that costs more'
complete -c larder -n "__fish_larder_using_subcommand size" -l live -d 'Record what programs on this machine read and write, and say whether its memory is enough for their files, what half and twice of it would do; with the policy `linux`'
complete -c larder -n "__fish_larder_using_subcommand size" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand sim" -l trace-format -d 'The format of the traces; told by content, else by the end of the name, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l max-bad -d 'Bad records that are passed over before it is an error' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l policy -d 'Policies by name, separated by commas; "all" for all of them, "min" for the bound' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l size -d 'Sizes of caches: 5% of the footprint, 64MiB, 1000p (pages)' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l page-size -d 'Sizes of pages, from 512 to 1MiB; if not given, 4KiB, or what the trace was recorded in' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l split -d 'Whether requests are split into pages, or are one reference each, as other simulators count' -r -f -a "pages\t'One reference for each page that a request touches'
none\t'One reference for each request, named by its offset'"
complete -c larder -n "__fish_larder_using_subcommand sim" -l level -d 'Level of the simulation: replacement only; or the whole cache of the engine on a virtual clock, with partial pages, write modes, the lazy writer, the dirty limit and a modelled store; or exactly the work of a server, from its recording (larder serve --record-inputs)' -r -f -a "replacement\t'The policies alone'
whole\t'The whole cache'
inputs\t'The cache of a server, replayed from its inputs: TRACE is a file of --record-inputs'"
complete -c larder -n "__fish_larder_using_subcommand sim" -l curve -d 'Estimate from a sample of the pages, with error bars; or exactly, for lru only' -r -f -a "exact\t'Every reference is counted'
sampled\t'A sample of fixed size stands for all'"
complete -c larder -n "__fish_larder_using_subcommand sim" -l by -d 'A curve for each volume, file, process or operation, as if it had a cache of its own' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l seed -d 'Where the random choices of a sample come from' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l threads -d 'Threads that run the caches; as many as there are cores, if not given. Results do not depend on it' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l format -d 'How to print the result' -r -f -a "text\t''
json\t''
csv\t''"
complete -c larder -n "__fish_larder_using_subcommand sim" -l write-mode -d 'Write modes, separated by commas' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l store -d 'What lies behind the cache: instant, fixed:TIME (for each operation), disk (7,200 rpm), cloud-general (3,000 operations a second), cloud-standard (500)' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l clients -d 'Requests that may be under way at a time' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l gap -d 'From one request to the next, whoever makes it, at least: what the front end needs, as 15us' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l think -d 'From an answer to the next request of the same client, as 100us' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l pace -d 'When requests are made: as soon as a client is free, or at the times of the trace' -r -f -a "closed\t''
recorded\t''"
complete -c larder -n "__fish_larder_using_subcommand sim" -l read-ahead -d 'Whether the cache reads ahead' -r -f -a "on\t''
off\t''"
complete -c larder -n "__fish_larder_using_subcommand sim" -l hint -d 'How the volumes will be read, as they are told: normal, sequential, random, no-buffering' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l set -d 'Set a tunable (docs/TUNABLES.md), as NAME=VALUE' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand watch" -l pid -d 'Only this process and those that it makes' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -l cgroup -d 'Only the processes of this control group, by its path below the root of the groups' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -l for -d 'How long; until Ctrl-C, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -l interval -d 'How often to tell' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -l rows -d 'How many files by processes to show in each table; as JSON there are at least 1,000' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -s o -l output -d 'Write the result as JSON into a file as well' -r -F
complete -c larder -n "__fish_larder_using_subcommand watch" -l format -d 'How to print the result' -r -f -a "text\t''
json\t''"
complete -c larder -n "__fish_larder_using_subcommand watch" -l bpf -d 'Whether the kernel counts look-ups itself, which costs the watched far less than telling of each: auto where it can be done' -r -f -a "auto\t''
on\t''
off\t''"
complete -c larder -n "__fish_larder_using_subcommand watch" -l buffer -d 'Memory for events that were not read yet, for each processor [default: 8MiB; up to 32MiB where each look-up is told]' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -l json -d 'The same as --format json'
complete -c larder -n "__fish_larder_using_subcommand watch" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand resident" -l depth -d 'So many levels below each directory have a row of their own; all sums hold everything below' -r
complete -c larder -n "__fish_larder_using_subcommand resident" -l format -d 'How to print the result' -r -f -a "text\t''
json\t''
csv\t''"
complete -c larder -n "__fish_larder_using_subcommand resident" -l json -d 'The same as --format json'
complete -c larder -n "__fish_larder_using_subcommand resident" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "fileload" -d 'Files read in order, at random, or as a database would, by several users'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "fragments" -d 'Make files for fileload: intertwined in so many extents, and contiguous copies'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "iozone" -d 'File sizes by record sizes: write, read, random, backward, strided and more'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "postmark" -d 'Many small files: create, read, append, delete'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "probe" -d 'Random records with a pattern of reads and writes, as the Response Probe did'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "server" -d 'Clients that read, write and copy, step by step more of them, up to where a server has enough'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "matrix" -d 'A benchmark on several file systems, schedulers and settings, each made for it and removed'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "cold" -d 'Make files cold: nothing of them in memory, as read back'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "warm" -d 'Make files warm: all of them in memory, as read back'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l mode -d 'In which order the files are read' -r -f -a "sequential\t'From the start to the end, again and again'
random\t'Every read as likely as the other'
database\t'Nine of ten reads in the four of eight regions that stand for indexes'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l read -d 'Bytes of a read; several, separated by commas, are measured one after the other. 8KiB, or 64KiB in database mode, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l size -d 'Bytes of each file that are read; 100MiB for files that are made, else all of them' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l users -d 'Users, each with a file of its own; 1 where files are made, else one for each file' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l in-flight -d 'Reads that each user has in flight' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l reads -d 'Reads by each user in a trial; as many as the file has room for, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l hint -d 'What the kernel is told about the reads to come: normal (nothing), sequential, random, or no-buffering, which reads past the page cache' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l start -d 'From where each trial starts: cold (nothing of its files in memory), warm (all of them) or as-is. The first two are made and read back before each trial. Cold, if nothing else is the custom of the benchmark' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l trials -d 'The fewest and the most trials, as in 6..30, or exactly so many' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l confidence -d 'Repeat until the 95 % interval of the first series is this small to both sides; off: do the fewest trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l for -d 'The time that may be spent; the trial at hand is not cut short, and one is always done' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l seed -d 'Where everything random comes from' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l same-speed -d 'Set short trials aside during which the machine was slower than it can be by more than this, and do them again; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l as-fast-as -d 'Trials count while the machine is as fast as it was in this record, for larder compare' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l format -d 'How to print the result' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One page with charts that needs nothing else'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -s o -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l hosts -d 'Start this very command on these hosts, one rank on each, and let them do the same together' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l ssh -d 'What starts a command on a host, as in \'ssh -p 2222\'; host and command are added' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l program -d 'Where larder is on the hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l listen -d 'Under mpirun: where rank 0 listens for the others' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l rendezvous -d 'Under mpirun: a file that rank 0 makes, to tell the others where it listens and how they show that they belong to it. On several machines it must lie where all find it' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l rank -d 'Which rank of how many this is, and on what host; who said --hosts says this' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l drop-all -d 'Before each cold start drop everything that the machine has cached. Needs root, and slows down whatever else runs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -l files -d 'Files of each kind' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -l size -d 'Bytes of each file' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -l extents -d 'Extents of each fragmented file' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -l seed -d 'Where the bytes come from' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -l remove -d 'Remove what was made in DIRECTORY before, and nothing else'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s i -l test -d 'A test: 0 write, 1 read, 2 random, 3 backward, 4 record rewrite, 5 stride, 6 fwrite, 7 fread, 8 random mix (with -t, -l or -u only), 9 pwrite, 10 pread; 0 to 7, if none is named. May be repeated' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s s -l file -d 'A file size, instead of the range; may be repeated. With -t the file of each thread, 64MiB if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s r -l record -d 'A record size, instead of the range; may be repeated. With -t 4KiB, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s n -l min-file -d 'The smallest file; 64KiB, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s g -l max-file -d 'The largest file; 512MiB, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s y -l min-record -d 'The smallest record; 4KiB, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s q -l max-record -d 'The largest record; 16MiB, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l factor -d 'From one size of a range to the next' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s o -l sync -d 'Every write waits until it is stable: all of it (`O_SYNC`), or its data alone (`O_DSYNC`)' -r -f -a "all\t'`O_SYNC`'
data\t'`O_DSYNC`'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s j -l stride -d 'Records from one to the next of the stride test' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s t -l threads -d 'Throughput mode: so many threads at once, each on a file of its own' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s l -l min-threads -d 'Throughput mode with each number of threads from this one on; up to this one, if -u is not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s u -l max-threads -d 'The most of them; from 1 on, if -l is not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l mix-readers -d 'How many of the threads of test 8 read; if not given every other one does' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l start -d 'From where each trial of a test that reads starts: cold, warm or as-is. The first two are made and read back. Warm, if not given; with --direct, which reads nothing from memory, cold' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l trials -d 'Trials of each test in each cell; the fewest and the most, as in 6..30, or exactly so many' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l confidence -d 'Repeat each test in each cell until the 95 % interval of its first column is this small to both sides; off: do the fewest trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l same-speed -d 'Set short trials aside during which the machine was slower than in others of the same cell by more than this, and do them again; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l seed -d 'Where the bytes of records come from' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l format -d 'How to print the result' -r -f -a "rows\t'A row for each cell with the rates of all tests, in kB/s; in throughput mode what parent and children saw'
tables\t'As for a spreadsheet: a table for each column, file sizes down, record sizes across, kB/s'
text\t'Tables and sentences of all runs'
csv\t'Every value, one line each'
html\t'One page with charts that needs nothing else'
json\t'The record'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l page -d 'Write the page with the charts as well' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s z -l no-cross-over -d 'Measure records below 64KiB on files above 16MiB too; as they are if a size or the range of records is named'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s I -l direct -d 'Past the page cache (`O_DIRECT`)'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s c -l close-counts -d 'The time of each pass includes closing the file'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s x -l no-stonewall -d 'In throughput mode each thread goes through all of its file; else all end with the first one that is through, as in IOzone'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s e -l flush-counts -d 'The rates of writes that are shown include the flush; the record has both'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l number -d 'Files that there are before the transactions [default: 500]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l transactions -d 'Transactions: each reads or appends, and creates or deletes [default: 500]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l size -d 'Sizes of files, as in 500-10000 or 4KiB [default: 500-10000]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l postmark-seed -d 'Where the random numbers of PostMark come from [default: 42]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l location -d 'A directory for the files, perhaps with a weight; may be repeated [default: the current one]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l subdirectories -d 'Subdirectories in each location; 0 and 1 are none [default: 0]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l read -d 'Bytes of one read [default: 512]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l write -d 'Bytes of one write [default: 512]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l buffering -d 'Whether reads and writes go through a buffer, as those of C\'s stdio [default: true]' -r -f -a "true\t''
false\t''"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l bias-read -d 'How many of ten times a file is read and not appended to; -1 for neither [default: 5]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l bias-create -d 'How many of ten times a file is created and not deleted; -1 for neither [default: 5]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l threads -d 'Threads, each with its own files and random numbers, and each doing all of it' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l fsync -d 'When what was written is made stable: none, close (each file), transaction, or end (of each phase)' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l data -d 'What is in the files: random (cannot be compressed, nothing twice) or classic (characters, the same in each)' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l start -d 'From where each trial starts: cold (nothing of its files in memory), warm (all of them) or as-is. The first two are made and read back before each trial. Cold, if nothing else is the custom of the benchmark' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l trials -d 'The fewest and the most trials, as in 6..30, or exactly so many' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l confidence -d 'Repeat until the 95 % interval of the first series is this small to both sides; off: do the fewest trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l for -d 'The time that may be spent; the trial at hand is not cut short, and one is always done' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l seed -d 'Where everything random comes from' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l same-speed -d 'Set short trials aside during which the machine was slower than it can be by more than this, and do them again; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l as-fast-as -d 'Trials count while the machine is as fast as it was in this record, for larder compare' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l format -d 'How to print the result' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One page with charts that needs nothing else'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -s o -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l hosts -d 'Start this very command on these hosts, one rank on each, and let them do the same together' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l ssh -d 'What starts a command on a host, as in \'ssh -p 2222\'; host and command are added' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l program -d 'Where larder is on the hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l listen -d 'Under mpirun: where rank 0 listens for the others' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l rendezvous -d 'Under mpirun: a file that rank 0 makes, to tell the others where it listens and how they show that they belong to it. On several machines it must lie where all find it' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l rank -d 'Which rank of how many this is, and on what host; who said --hosts says this' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l classic -d 'Behave exactly as the original: script, then prompt, whole seconds, errors passed over, one run for each command. Takes no other flags'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l drop-all -d 'Before each cold start drop everything that the machine has cached. Needs root, and slows down whatever else runs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l in-process -d 'Work on the cache of this very program instead, in front of this store' -r -f -a "memory\t'Memory, which answers at once'
disk\t'A modelled disk of 7,200 rpm, in real time'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l memory -d 'Size of the cache: that of --in-process, or of the one that answers for TARGET' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l policy -d 'Replacement policy of --in-process' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l size -d 'Bytes that are worked on; 64MiB for a new file, else all of it' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l scenario -d 'Work on so many times the size of the cache as the published measurements did' -r -f -a "fits\t'The file fits: 16 MB'
overrun\t'The file is five times the cache: 128 MB of 26 MB'
favoured\t'The same with more memory for the cache: 128 MB of 40 MB'
leak\t'The file fits, and a process of its own takes memory: step by step in the first half of each trial, and keeps it to the end'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l leak -d 'How much memory the process of --scenario leak takes at the most; a quarter of what can be had, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l record -d 'Bytes of a record' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l pattern -d 'What is done to successive records: R reads, W writes' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l order -d 'Where cycles begin' -r -f -a "normal\t'Normally distributed, folded into the file'
uniform\t'Every record as likely as the other'
sequential\t'Where the last cycle ended'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l seek -d 'Mean and standard deviation of normal seeks, in records, as in 2000,300; the middle and a sixth of the file, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l cycle -d 'Records of a cycle, mean and standard deviation' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l think -d 'Milliseconds of thinking before each cycle, mean and standard deviation' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l compute -d 'Milliseconds of computing at the end of each cycle, mean and standard deviation' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l threads -d 'Threads, each with requests of its own' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l length -d 'How long a trial is; its second half is measured' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l start -d 'From where each trial starts: cold (nothing of its files in memory), warm (all of them) or as-is. The first two are made and read back before each trial. Cold, if nothing else is the custom of the benchmark' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l trials -d 'The fewest and the most trials, as in 6..30, or exactly so many' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l confidence -d 'Repeat until the 95 % interval of the first series is this small to both sides; off: do the fewest trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l for -d 'The time that may be spent; the trial at hand is not cut short, and one is always done' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l seed -d 'Where everything random comes from' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l same-speed -d 'Set short trials aside during which the machine was slower than it can be by more than this, and do them again; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l as-fast-as -d 'Trials count while the machine is as fast as it was in this record, for larder compare' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l format -d 'How to print the result' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One page with charts that needs nothing else'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -s o -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l hosts -d 'Start this very command on these hosts, one rank on each, and let them do the same together' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l ssh -d 'What starts a command on a host, as in \'ssh -p 2222\'; host and command are added' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l program -d 'Where larder is on the hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l listen -d 'Under mpirun: where rank 0 listens for the others' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l rendezvous -d 'Under mpirun: a file that rank 0 makes, to tell the others where it listens and how they show that they belong to it. On several machines it must lie where all find it' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l rank -d 'Which rank of how many this is, and on what host; who said --hosts says this' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l unbuffered -d 'Past the page cache, with direct I/O'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l mapped -d 'Map the file into memory, and read and write that'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l overwrite -d 'Write to TARGET although it was there before. What it holds is lost'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l drop-all -d 'Before each cold start drop everything that the machine has cached. Needs root, and slows down whatever else runs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l clients -d 'Clients of each step' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l mix -d 'Weights of transactions that read an item, write one, and copy one to another' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l think -d 'Milliseconds of thinking before each transaction, mean and standard deviation' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l items -d 'Items of each client' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l size -d 'Bytes of an item' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l record -d 'Bytes that are read or written at a time' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l warm-up -d 'How long each step runs before it is measured' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l measure -d 'How long each step is measured' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l start -d 'From where each trial starts: cold (nothing of its files in memory), warm (all of them) or as-is. The first two are made and read back before each trial. Cold, if nothing else is the custom of the benchmark' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l trials -d 'The fewest and the most trials, as in 6..30, or exactly so many' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l confidence -d 'Repeat until the 95 % interval of the first series is this small to both sides; off: do the fewest trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l for -d 'The time that may be spent; the trial at hand is not cut short, and one is always done' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l seed -d 'Where everything random comes from' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l same-speed -d 'Set short trials aside during which the machine was slower than it can be by more than this, and do them again; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l as-fast-as -d 'Trials count while the machine is as fast as it was in this record, for larder compare' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l format -d 'How to print the result' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One page with charts that needs nothing else'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -s o -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l hosts -d 'Start this very command on these hosts, one rank on each, and let them do the same together' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l ssh -d 'What starts a command on a host, as in \'ssh -p 2222\'; host and command are added' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l program -d 'Where larder is on the hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l listen -d 'Under mpirun: where rank 0 listens for the others' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l rendezvous -d 'Under mpirun: a file that rank 0 makes, to tell the others where it listens and how they show that they belong to it. On several machines it must lie where all find it' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l rank -d 'Which rank of how many this is, and on what host; who said --hosts says this' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l sync -d 'Make what a transaction writes stable before it ends'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l unbuffered -d 'Past the page cache, with direct I/O'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l overwrite -d 'Write to TARGET although it was there before. What it holds is lost'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l drop-all -d 'Before each cold start drop everything that the machine has cached. Needs root, and slows down whatever else runs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l workload -d 'The benchmark. Its own words stand behind --' -r -f -a "postmark\t'Many small files; see larder bench postmark'
probe\t'Random records of a file; see larder bench probe'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l fs -d 'File systems: ext2, ext3, ext4, xfs, btrfs, f2fs, ntfs. One that this kernel lacks is left out, and that is said' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l scheduler -d 'Schedulers of the device, as the kernel calls them' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l variant -d 'How file systems are made and mounted and how the benchmark is favoured, as in \'tuned=-b 1024; noatime\' or \'tuned=fs: ext4; mkfs: -b 1024; mount: noatime; nice: 5; policy: batch; iopriority: idle\'. May be repeated; \'plain=\' is all defaults' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l size -d 'Size of each device' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l scratch -d 'The directory for its image, which takes no more room than is written' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l start -d 'From where each trial starts: cold (nothing of its files in memory), warm (all of them) or as-is. The first two are made and read back before each trial. Cold, if nothing else is the custom of the benchmark' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l trials -d 'The fewest and the most trials, as in 6..30, or exactly so many' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l confidence -d 'Repeat until the 95 % interval of the first series is this small to both sides; off: do the fewest trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l for -d 'The time that may be spent; the trial at hand is not cut short, and one is always done' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l seed -d 'Where everything random comes from' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l same-speed -d 'Set short trials aside during which the machine was slower than it can be by more than this, and do them again; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l as-fast-as -d 'Trials count while the machine is as fast as it was in this record, for larder compare' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l format -d 'How to print the result' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One page with charts that needs nothing else'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -s o -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l hosts -d 'Start this very command on these hosts, one rank on each, and let them do the same together' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l ssh -d 'What starts a command on a host, as in \'ssh -p 2222\'; host and command are added' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l program -d 'Where larder is on the hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l listen -d 'Under mpirun: where rank 0 listens for the others' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l rendezvous -d 'Under mpirun: a file that rank 0 makes, to tell the others where it listens and how they show that they belong to it. On several machines it must lie where all find it' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l rank -d 'Which rank of how many this is, and on what host; who said --hosts says this' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l drop-all -d 'Before each cold start drop everything that the machine has cached. Needs root, and slows down whatever else runs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from cold" -l drop-all -d 'Drop everything that the machine has cached as well: inodes, directories, and what lies below FUSE and loop devices. Needs root, and slows down whatever else runs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from cold" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from warm" -l drop-all -d 'Drop everything that the machine has cached as well: inodes, directories, and what lies below FUSE and loop devices. Needs root, and slows down whatever else runs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from warm" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand try" -l memory -d 'Memory of the cache, with everything that goes with it' -r
complete -c larder -n "__fish_larder_using_subcommand try" -l workload -d 'What is done. Its own words may stand behind --' -r -f -a "postmark\t'Many small files: create, read, append, delete'
fileload\t'A file read in order, or at random'
probe\t'Random records of a file, read and written'"
complete -c larder -n "__fish_larder_using_subcommand try" -l flush -d 'What fsync does in the cache: keep its promise, or ignore it, which loses what a crash finds unwritten' -r
complete -c larder -n "__fish_larder_using_subcommand try" -l trials -d 'Trials of each side from each start; a verdict needs four' -r
complete -c larder -n "__fish_larder_using_subcommand try" -s o -l output -d 'Where the page with the charts goes, replacing what is there; JSON if the name ends so' -r -F
complete -c larder -n "__fish_larder_using_subcommand try" -l yes -d 'Use more than a tenth of the free space without being asked'
complete -c larder -n "__fish_larder_using_subcommand try" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand compare" -l threshold -d 'Differences of less than this count as none' -r
complete -c larder -n "__fish_larder_using_subcommand compare" -l format -d 'How to print the result' -r -f -a "text\t'A table, and what else is different'
csv\t'The table alone'
json\t'Everything'"
complete -c larder -n "__fish_larder_using_subcommand compare" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand report" -l format -d 'How to show it; html if the name of the output ends so' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One page with charts that needs nothing else'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand report" -s o -l output -d 'Where to, instead of standard output. It is written under another name and renamed' -r -F
complete -c larder -n "__fish_larder_using_subcommand report" -l names -d 'The names of counters on the machine that a log of Perfmon is of, if larder does not know them: what its registry has as Counter for its language (docs/perfmon.md)' -r -F
complete -c larder -n "__fish_larder_using_subcommand report" -l decimal -d 'What stands before the decimals of a log of Perfmon, if the log itself does not show it' -r -f -a "point\t'1.5'
comma\t'1,5'"
complete -c larder -n "__fish_larder_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand top" -l interval -d 'How often to look' -r
complete -c larder -n "__fish_larder_using_subcommand top" -l view -d 'What to show first' -r -f -a "files\t'Open files and what of them is in memory'
processes\t'What processes read and write'
disks\t'What disks do'
caches\t'What larder serves here'
uses\t'Files by the processes that use them, and who hits; needs root'"
complete -c larder -n "__fish_larder_using_subcommand top" -s o -l output -d 'Record from the beginning, one line of JSON for each look; where there is such a file already, under the next name that is free' -r -F
complete -c larder -n "__fish_larder_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
