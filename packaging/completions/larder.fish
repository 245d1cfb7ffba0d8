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
complete -c larder -n "__fish_larder_needs_command" -f -a "mount" -d 'Mount a directory through a cache for the data of its files'
complete -c larder -n "__fish_larder_needs_command" -f -a "ctl" -d 'Query and change a running server'
complete -c larder -n "__fish_larder_needs_command" -f -a "check-config" -d 'Check a configuration file of larder serve'
complete -c larder -n "__fish_larder_needs_command" -f -a "demo" -d 'Demonstrate a cache in a minute: an image and a workload, with and without cache'
complete -c larder -n "__fish_larder_needs_command" -f -a "trace" -d 'Convert, summarise, filter, merge, generate and replay traces of requests'
complete -c larder -n "__fish_larder_needs_command" -f -a "size" -d 'Recommend a cache for a trace: size, policy, pages, and the effect of half and twice the size'
complete -c larder -n "__fish_larder_needs_command" -f -a "sim" -d 'Simulate caches over traces: hit ratios by policy and size, and curves'
complete -c larder -n "__fish_larder_needs_command" -f -a "watch" -d 'Show the activity of the host\'s page cache, by file and process'
complete -c larder -n "__fish_larder_needs_command" -f -a "resident" -d 'Report the resident part of files and directories'
complete -c larder -n "__fish_larder_needs_command" -f -a "bench" -d 'Run a benchmark with reliable and comparable results'
complete -c larder -n "__fish_larder_needs_command" -f -a "try" -d 'Measure the gain of a cache in a directory: the same work natively and through a temporary cache'
complete -c larder -n "__fish_larder_needs_command" -f -a "compare" -d 'Compare two runs: better, worse, or inconclusive'
complete -c larder -n "__fish_larder_needs_command" -f -a "report" -d 'Show a run: text, CSV, JSON, or a page with charts'
complete -c larder -n "__fish_larder_needs_command" -f -a "top" -d 'Show files, processes, disks and caches of this machine, live'
complete -c larder -n "__fish_larder_using_subcommand serve" -l config -d 'Read flags and volumes from this file (docs/config.md) as well; those of the command line override them. SIGHUP reads it again' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l memory -d 'Memory of the cache, including its metadata, shared by all volumes [default: 256MiB]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l listen -d 'Listening address: unix:PATH or tcp:ADDRESS:PORT. Default: a socket in the runtime directory' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l send-timeout -d 'Close a connection whose client receives none of its waiting replies for this time [default: 1m]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l fuse -d 'Show each volume as a file in this empty directory, by FUSE, for loop devices and mounts' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l record -d 'Record every answered request into a new trace' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l record-inputs -d 'Record every input of the cache into a new file, which larder sim --level inputs replays. Serving is slower' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l counters -d 'Write the counters as JSON to this file on SIGUSR1 and at the end, replacing it' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l tls -d 'Speak TLS, with server-cert.pem and server-key.pem of this directory' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l tls-mode -d 'Handling of clients without TLS: require refuses them, allow serves them [default: require]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l page-size -d 'Unit of replacement, 4KiB to 1MiB [default: 4KiB]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l policy -d 'Replacement policy: random, fifo, lru, clock, 2q, slru, arc, lirs, s3fifo, sieve, wtinylfu, clock2q+, linux; or auto, which changes it for one that hits clearly more [default: s3fifo]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l read-ahead -d 'Maximum size of read-ahead for a stream, or "off" [default: 1MiB]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l hint -d 'Expected access pattern: normal, sequential (once and in order), random (no read-ahead), no-buffering (its clients have a cache of their own) [default: normal]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l give-back -d 'Give memory back, down to FLOOR and the minimum of volumes, while the system is short of it, and take it again later' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l share -d 'Eviction between volumes: coldest (the page not used for longest, of any volume), or auto (each volume has a part, and parts move to the volumes where they yield most hits) [default: coldest]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l min -d 'Memory that other volumes cannot take from a volume' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l max -d 'Maximum memory of a volume, or all' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l write-mode -d 'Write mode: back (a write is acknowledged when it is in the cache), through (when it is in the store too), around (it bypasses the cache), read-only [default: back]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l flush -d 'Flush mode: keep the guarantee of a flush and of fsync, or ignore it, which loses unwritten data in a crash [default: keep]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l preset -d 'Values of all tunables: larder, or nt for those of the Windows NT file cache [default: larder]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l control -d 'Socket for larder ctl, or none. Default: one in the runtime directory, where ctl finds it' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l control-tcp -d 'Accept control connections over TCP as well, from this machine only; needs --control-token' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l control-token -d 'File with the token that clients over TCP must present, on one line; only its owner may have access' -r -F
complete -c larder -n "__fish_larder_using_subcommand serve" -l warm-list -d 'Directory for lists of cached pages, which are read back at the next start, or none. Default: the state directory of a service manager, else none' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l warm-list-every -d 'Interval at which the lists are saved, in addition to the end, or off [default: 5m]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l first-delay -d 'How long a page stays dirty at least before an idle volume writes it (CcFirstDelay) [default: 1000]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l idle-delay -d 'How long no request must have come for a volume to be idle (CcIdleDelay) [default: 500]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l collision-delay -d 'How long the lazy writer backs off when clients wait for the store (CcCollisionDelay) [default: 100]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l age-max -d 'A page that has been dirty for this long is written, idle or not; where flushes are ignored, the store is flushed as often. Twice this, and the time that writing takes, bounds what `--flush ignore` can lose [default: 5000]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l dirty-threshold -d 'From this much dirty on the lazy writer writes in bursts (CcDirtyPageThreshold) [default: 375]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l dirty-target -d 'A series of bursts ends at this (CcDirtyPageTarget) [default: 750]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l dirty-limit -d 'More is never dirty: writes are slowed down on the way there and wait at it [default: 800]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l burst-share -d 'How much one burst writes, oldest first, in disk order [default: 250]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l background-depth -d 'Writes that the lazy writer keeps in the store at a time; one while clients wait [default: 4]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l forced-depth -d 'Writes kept in the store at a time when a client waits for them [default: 32]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l retry-delay -d 'After a failed write the lazy writer waits this long, then twice as long, and so on [default: 100]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l retry-delay-max -d 'The longest such wait [default: 10000]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l read-ahead-max -d 'The most that is read ahead of a stream at a time; 0 reads nothing ahead [default: 1048576]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l read-ahead-min -d 'The least that is read ahead of a stream at a time; never more than `read-ahead-max` [default: 16384]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l read-ahead-steps -d 'So many requests must each go on where the one before ended, or at an equal distance, before anything is read ahead; more where much was read ahead for nothing [default: 2]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l read-ahead-streams -d 'Streams that are followed at a time on each connection [default: 8]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l read-ahead-depth -d 'Reads ahead that are kept in the store at a time [default: 8]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l read-ahead-share -d 'Memory for reads ahead that are on their way; a window is at most a 32nd of it [default: 125]' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l set -d 'Set a tunable (docs/TUNABLES.md)' -r
complete -c larder -n "__fish_larder_using_subcommand serve" -l tls-verify-peer -d 'Refuse clients without a certificate signed by ca-cert.pem of the directory'
complete -c larder -n "__fish_larder_using_subcommand serve" -l lock -d 'Lock the memory, so that it is never swapped out'
complete -c larder -n "__fish_larder_using_subcommand serve" -l plain-io -d 'Use plain system calls even if io_uring is available'
complete -c larder -n "__fish_larder_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand mount" -s o -l options -d 'Restrictions of the mount in addition to those of SOURCE\'s mount, which always apply: nosuid, nodev, noexec, nosymfollow, separated by commas' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l ttl -d 'Maximum age of names and attributes that are used without asking SOURCE, and of cached data if changes by others are not reported' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l rule -d 'Options for some files, by name or path: GLOB and words for hint, write mode, page size, pin, no-cache, kernel-pages=off|open|keep; words that are left out are as for all files. Of several rules the first that matches a file applies (docs/mount.md)' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l memory -d 'Memory of the cache, including its metadata, shared by all volumes [default: 256MiB]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l record-inputs -d 'Record every input of the cache into a new file, which larder sim --level inputs replays. Serving is slower' -r -F
complete -c larder -n "__fish_larder_using_subcommand mount" -l counters -d 'Write the counters as JSON to this file on SIGUSR1 and at the end, replacing it' -r -F
complete -c larder -n "__fish_larder_using_subcommand mount" -l page-size -d 'Unit of replacement, 4KiB to 1MiB [default: 4KiB]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l policy -d 'Replacement policy: random, fifo, lru, clock, 2q, slru, arc, lirs, s3fifo, sieve, wtinylfu, clock2q+, linux; or auto, which changes it for one that hits clearly more [default: s3fifo]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l read-ahead -d 'Maximum size of read-ahead for a stream, or "off" [default: 1MiB]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l hint -d 'Expected access pattern: normal, sequential (once and in order), random (no read-ahead), no-buffering (its clients have a cache of their own) [default: normal]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l give-back -d 'Give memory back, down to FLOOR and the minimum of volumes, while the system is short of it, and take it again later' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l write-mode -d 'Write mode: back (a write is acknowledged when it is in the cache), through (when it is in the store too), around (it bypasses the cache), read-only [default: back]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l flush -d 'Flush mode: keep the guarantee of a flush and of fsync, or ignore it, which loses unwritten data in a crash [default: keep]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l preset -d 'Values of all tunables: larder, or nt for those of the Windows NT file cache [default: larder]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l control -d 'Socket for larder ctl, or none. Default: one in the runtime directory, where ctl finds it' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l control-tcp -d 'Accept control connections over TCP as well, from this machine only; needs --control-token' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l control-token -d 'File with the token that clients over TCP must present, on one line; only its owner may have access' -r -F
complete -c larder -n "__fish_larder_using_subcommand mount" -l first-delay -d 'How long a page stays dirty at least before an idle volume writes it (CcFirstDelay) [default: 1000]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l idle-delay -d 'How long no request must have come for a volume to be idle (CcIdleDelay) [default: 500]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l collision-delay -d 'How long the lazy writer backs off when clients wait for the store (CcCollisionDelay) [default: 100]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l age-max -d 'A page that has been dirty for this long is written, idle or not; where flushes are ignored, the store is flushed as often. Twice this, and the time that writing takes, bounds what `--flush ignore` can lose [default: 5000]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l dirty-threshold -d 'From this much dirty on the lazy writer writes in bursts (CcDirtyPageThreshold) [default: 375]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l dirty-target -d 'A series of bursts ends at this (CcDirtyPageTarget) [default: 750]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l dirty-limit -d 'More is never dirty: writes are slowed down on the way there and wait at it [default: 800]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l burst-share -d 'How much one burst writes, oldest first, in disk order [default: 250]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l background-depth -d 'Writes that the lazy writer keeps in the store at a time; one while clients wait [default: 4]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l forced-depth -d 'Writes kept in the store at a time when a client waits for them [default: 32]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l retry-delay -d 'After a failed write the lazy writer waits this long, then twice as long, and so on [default: 100]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l retry-delay-max -d 'The longest such wait [default: 10000]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l read-ahead-max -d 'The most that is read ahead of a stream at a time; 0 reads nothing ahead [default: 1048576]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l read-ahead-min -d 'The least that is read ahead of a stream at a time; never more than `read-ahead-max` [default: 16384]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l read-ahead-steps -d 'So many requests must each go on where the one before ended, or at an equal distance, before anything is read ahead; more where much was read ahead for nothing [default: 2]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l read-ahead-streams -d 'Streams that are followed at a time on each connection [default: 8]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l read-ahead-depth -d 'Reads ahead that are kept in the store at a time [default: 8]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l read-ahead-share -d 'Memory for reads ahead that are on their way; a window is at most a 32nd of it [default: 125]' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l set -d 'Set a tunable (docs/TUNABLES.md)' -r
complete -c larder -n "__fish_larder_using_subcommand mount" -l allow-other -d 'Give all users access, according to the modes of files, and not only the user who mounts'
complete -c larder -n "__fish_larder_using_subcommand mount" -l shared -d 'Other programs change the directory too: the kernel reports their changes, which requires root; otherwise names and attributes are always validated, as with --ttl 0s'
complete -c larder -n "__fish_larder_using_subcommand mount" -l lock -d 'Lock the memory, so that it is never swapped out'
complete -c larder -n "__fish_larder_using_subcommand mount" -l plain-io -d 'Use plain system calls even if io_uring is available'
complete -c larder -n "__fish_larder_using_subcommand mount" -l while-input -d 'Stop as on SIGTERM when standard input ends, for a program that mounts for its own use'
complete -c larder -n "__fish_larder_using_subcommand mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "stats" -d 'Requests of clients, their results in the cache, and operations of the stores'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "volumes" -d 'The volumes and their settings'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "curve" -d 'The hit-ratio curve of each volume, its regions, the hit ratios of other policies, and recommendations'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "files" -d 'The files of a mounted directory with the most cached data: resident, dirty, read hits'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "at-risk" -d 'Data that a crash now would lose, and failing writes; exit code 1 if there are failing writes'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "metrics" -d 'All metrics in OpenMetrics format, as Prometheus reads them'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "set" -d 'Change settings of a running server: all of these or none'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "flush" -d 'Write all dirty data to the stores and flush them, without stopping'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "warm" -d 'Read ranges of a volume into the cache ahead of use'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "add" -d 'Serve an additional volume, with the server\'s flags for all volumes'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "remove" -d 'Write all dirty data of a volume and stop serving it'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "drop" -d 'Drop clean pages; dirty pages stay'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "freeze" -d 'Freeze the cache contents of a volume: its requests neither add nor evict pages'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "unfreeze" -d 'End a freeze'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "pin" -d 'Read ranges of a volume into the cache and keep them until they are unpinned'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "unpin" -d 'Unpin ranges, so that they can be evicted'
complete -c larder -n "__fish_larder_using_subcommand ctl; and not __fish_seen_subcommand_from stats volumes curve files at-risk metrics set flush warm add remove drop freeze unfreeze pin unpin stop" -f -a "stop" -d 'Write all dirty data and stop the server, as SIGTERM does, and wait for its end'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l all -d 'Show every counter, gauge and latency instead'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stats" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -l places -d 'Show the locations of their stores and exports instead'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from volumes" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from curve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l top -d 'Maximum number of files, in every format' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from files" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from at-risk" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from metrics" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from flush" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from warm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l disconnect -d 'Disconnect its clients after their requests in flight, instead of refusing'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l give-up -d 'Discard unwritten data, instead of keeping a volume that cannot be written out'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from drop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from freeze" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unfreeze" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from pin" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from unpin" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -l control -d 'The server: the path of its control socket, or http://127.0.0.1:PORT. Default: the only server that is found' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -l token -d 'File with the token, for a server that is controlled over TCP' -r -F
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -l trust-uid -d 'Also trust the server of --control if it runs as this user, in addition to your own user and root' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -l format -d 'Output format' -r -f -a "text\t'Text for people'
json\t'The response of the server, unchanged'
csv\t'One table with plain numbers'"
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -l watch -d 'Repeat the query at this interval: rates of each interval and totals' -r
complete -c larder -n "__fish_larder_using_subcommand ctl; and __fish_seen_subcommand_from stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand check-config" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand demo" -l memory -d 'Memory of the cache' -r
complete -c larder -n "__fish_larder_using_subcommand demo" -l directory -d 'Directory for the image, on the disk to be shown' -r -F
complete -c larder -n "__fish_larder_using_subcommand demo" -l seconds -d 'Seconds of each of the eight trials; the second half of each is measured' -r
complete -c larder -n "__fish_larder_using_subcommand demo" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "convert" -d 'Write one or more traces, one after the other, in another format'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "summary" -d 'Describe a trace: requests, bytes, footprint, sizes, times'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "head" -d 'Print the first requests as CSV'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "filter" -d 'Keep only matching requests'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "merge" -d 'Write several traces as one, in the order of their times'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "synth" -d 'Generate a trace from a pattern and a seed'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "record" -d 'Record the reads and writes of programs on this machine through its page cache'
complete -c larder -n "__fish_larder_using_subcommand trace; and not __fish_seen_subcommand_from convert summary head filter merge synth record replay" -f -a "replay" -d 'Send the requests of a trace to an export, and measure the latencies'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from convert" -l to -d 'Output format; if not given, by the extension of the file, else larder' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from convert" -l format -d 'Format of the traces; if not given, detected by content, or else by the extension' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from convert" -l max-bad -d 'Maximum number of bad records that are skipped; one more is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from convert" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from summary" -l format -d 'Format of the traces; if not given, detected by content, or else by the extension' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from summary" -l max-bad -d 'Maximum number of bad records that are skipped; one more is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from summary" -l json -d 'Print JSON instead of text'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from summary" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from head" -s n -l requests -d 'Number of requests' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from head" -l format -d 'Format of the traces; if not given, detected by content, or else by the extension' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from head" -l max-bad -d 'Maximum number of bad records that are skipped; one more is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from head" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l to-format -d 'Output format; if not given, by the extension of the file, else larder' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l volume -d 'Volumes to keep, by name, or by number if they have none; may be given several times' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l file -d 'Files to keep' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l process -d 'Processes to keep' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l op -d 'Operations to keep: read, write, flush, discard, zero' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l from -d 'Start of the time to keep, since the beginning of the trace, as 90s, 5m, 1.5h, 20ms' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l to -d 'End of the time to keep' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l range -d 'Offsets: keep requests that overlap them, as 1GiB..2GiB or 4096..8192; an end may be missing' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l format -d 'Format of the traces; if not given, detected by content, or else by the extension' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -l max-bad -d 'Maximum number of bad records that are skipped; one more is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from filter" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from merge" -l to -d 'Output format; if not given, by the extension of the file, else larder' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from merge" -l format -d 'Format of the traces; if not given, detected by content, or else by the extension' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from merge" -l max-bad -d 'Maximum number of bad records that are skipped; one more is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from merge" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l to -d 'Output format; if not given, by the extension of the file, else larder' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l requests -d 'Total number of requests' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l pages -d 'Pages of the volume' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l page-size -d 'Bytes of a page; each request is one page, except the reports of a database' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l exponent -d 'Exponent of Zipf\'s law: 0.6 is flat, 1.2 is steep' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l writes -d 'Percentage of writes; in a database, percentage of transactions that write' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l rate -d 'Requests per second' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -l seed -d 'Seed of all random numbers' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from synth" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from record" -l pid -d 'Only this process and its descendants' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from record" -l cgroup -d 'Only the processes of this control group, by its path below the root of the groups' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from record" -l for -d 'Duration; until Ctrl-C, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from record" -l sample -d 'Keep one page in this many, by a hash of its file and number. The trace stores the ratio, and `larder size` scales its results' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from record" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l to -d 'The export to replay to, if the trace has one volume' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l volume -d 'The export of one volume of the trace, by name, or by number if it has none; may be given several times' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l speed -d 'Send requests at the times of the trace, this many times as fast; without it, as fast as replies arrive' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l connections -d 'Connections to each export' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l depth -d 'Requests in flight on each connection; 1 if not given, 32 with --speed' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l format -d 'Format of the traces; if not given, detected by content, or else by the extension' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l max-bad -d 'Maximum number of bad records that are skipped; one more is an error' -r
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l wrap -d 'Fold offsets beyond the end of an export into it'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l read-only -d 'Skip requests that write, discard or zero'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -l json -d 'Print JSON instead of text'
complete -c larder -n "__fish_larder_using_subcommand trace; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand size" -l target -d 'Target: a percentage of the hits of a cache for everything' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l budget -d 'Maximum memory, including the tables of the cache' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l policy -d 'Policies to choose from, separated by commas; all of them, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l html -d 'Write a page with charts as well, one self-contained file' -r -F
complete -c larder -n "__fish_larder_using_subcommand size" -l format -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c larder -n "__fish_larder_using_subcommand size" -l seed -d 'Seed of the random choices of samples' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l threads -d 'Threads; as many as there are cores, if not given. The result does not depend on it' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l for -d 'Duration; until Ctrl-C, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l pid -d 'Only this process and its descendants' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l cgroup -d 'Only the processes of this control group' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l trace-format -d 'Format of the trace; if not given, detected by content, or else by the extension' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l max-bad -d 'Maximum number of bad records that are skipped; one more is an error' -r
complete -c larder -n "__fish_larder_using_subcommand size" -l json -d 'The same as --format json'
complete -c larder -n "__fish_larder_using_subcommand size" -l sampled -d 'Estimate everything from samples; omit counts over the whole trace that cost more'
complete -c larder -n "__fish_larder_using_subcommand size" -l live -d 'Record the reads and writes of programs on this machine, and report if its memory is sufficient for their files, and the effect of half and twice of it; with the policy `linux`'
complete -c larder -n "__fish_larder_using_subcommand size" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand sim" -l trace-format -d 'Format of the traces; if not given, detected by content, or else by the extension' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l max-bad -d 'Maximum number of bad records that are skipped; one more is an error' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l policy -d 'Policies by name, separated by commas; "all" for all of them, "min" for the bound' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l size -d 'Sizes of caches: 5% of the footprint, 64MiB, 1000p (pages)' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l page-size -d 'Sizes of pages, from 512 to 1MiB; if not given, 4KiB, or the unit of the recording' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l split -d 'Split requests into pages, or count each as one reference, like other simulators' -r -f -a "pages\t'One reference for each page that a request touches'
none\t'One reference for each request, named by its offset'"
complete -c larder -n "__fish_larder_using_subcommand sim" -l level -d 'Level of the simulation: replacement only; or the whole cache of the engine on a virtual clock, with partial pages, write modes, the lazy writer, the dirty limit and a modelled store; or exactly the work of a server, from its recording (larder serve --record-inputs)' -r -f -a "replacement\t'Only the policies'
whole\t'The whole cache'
inputs\t'The cache of a server, replayed from its inputs: TRACE is a file of --record-inputs'"
complete -c larder -n "__fish_larder_using_subcommand sim" -l curve -d 'Hit-ratio curve, estimated from a sample of the pages, with error bars; or exact, for lru only' -r -f -a "exact\t'Counts every reference'
sampled\t'Estimates from a sample of fixed size'"
complete -c larder -n "__fish_larder_using_subcommand sim" -l by -d 'A curve for each volume, file, process or operation, as if it had a cache of its own' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l seed -d 'Seed of the random choices of a sample' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l threads -d 'Threads that run the caches; as many as there are cores, if not given. Results do not depend on it' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l format -d 'Output format' -r -f -a "text\t''
json\t''
csv\t''"
complete -c larder -n "__fish_larder_using_subcommand sim" -l write-mode -d 'Write modes, separated by commas' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l store -d 'Model of the store: instant, fixed:TIME (for each operation), disk (7,200 rpm), cloud-general (3,000 operations a second), cloud-standard (500)' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l clients -d 'Maximum number of requests in flight' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l gap -d 'Minimum time between two requests of any client, for the front end, for example 15us' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l think -d 'Think time, from a reply to the next request of the same client, for example 100us' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l pace -d 'Time of requests: as soon as a client is free, or at the times of the trace' -r -f -a "closed\t''
recorded\t''"
complete -c larder -n "__fish_larder_using_subcommand sim" -l read-ahead -d 'Read-ahead, on or off' -r -f -a "on\t''
off\t''"
complete -c larder -n "__fish_larder_using_subcommand sim" -l hint -d 'Expected access pattern of the volumes: normal, sequential, random, no-buffering' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -l set -d 'Set a tunable (docs/TUNABLES.md), as NAME=VALUE' -r
complete -c larder -n "__fish_larder_using_subcommand sim" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand watch" -l pid -d 'Only this process and its descendants' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -l cgroup -d 'Only the processes of this control group, by its path below the root of the groups' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -l for -d 'Duration; until Ctrl-C, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -l interval -d 'Reporting interval' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -l rows -d 'Number of files by process in each table; as JSON there are at least 1,000' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -s o -l output -d 'Write the result as JSON into a file as well' -r -F
complete -c larder -n "__fish_larder_using_subcommand watch" -l format -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c larder -n "__fish_larder_using_subcommand watch" -l bpf -d 'Count look-ups in the kernel, with far less overhead than reporting each of them; auto: if supported' -r -f -a "auto\t''
on\t''
off\t''"
complete -c larder -n "__fish_larder_using_subcommand watch" -l buffer -d 'Memory for unread events, for each processor [default: 8MiB; up to 32MiB if each look-up is reported]' -r
complete -c larder -n "__fish_larder_using_subcommand watch" -l json -d 'The same as --format json'
complete -c larder -n "__fish_larder_using_subcommand watch" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand resident" -l depth -d 'Levels below each directory that have a row of their own; all sums include everything below' -r
complete -c larder -n "__fish_larder_using_subcommand resident" -l format -d 'Output format' -r -f -a "text\t''
json\t''
csv\t''"
complete -c larder -n "__fish_larder_using_subcommand resident" -l json -d 'The same as --format json'
complete -c larder -n "__fish_larder_using_subcommand resident" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "fileload" -d 'Read files in order, at random, or like a database, with several users'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "fragments" -d 'Create files for fileload: interleaved with a given number of extents, and contiguous copies'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "iozone" -d 'Measure file sizes by record sizes: write, read, random, backward, strided and more'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "postmark" -d 'Create, read, append and delete many small files'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "probe" -d 'Access random records with a pattern of reads and writes, like the Response Probe'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "server" -d 'Run an increasing number of clients that read, write and copy, until a server is saturated'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "matrix" -d 'Run a benchmark on several file systems, schedulers and settings, each created and removed'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "cold" -d 'Make files cold: no page of them is resident, verified'
complete -c larder -n "__fish_larder_using_subcommand bench; and not __fish_seen_subcommand_from fileload fragments iozone postmark probe server matrix cold warm" -f -a "warm" -d 'Make files warm: all pages are resident, verified'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l mode -d 'Order of the reads' -r -f -a "sequential\t'From the start to the end, repeatedly'
random\t'Random, uniformly distributed'
database\t'Nine of ten reads in four of eight regions, which stand for indexes'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l read -d 'Bytes of a read; several, separated by commas, are measured one after the other. 8KiB, or 64KiB in database mode, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l size -d 'Bytes of each file that are read; 100MiB for created files, else all of them' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l users -d 'Users, each with a file of its own; 1 for created files, else one for each file' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l in-flight -d 'Reads in flight of each user' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l reads -d 'Reads by each user in a trial; as many as the file has room for, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l hint -d 'Advice to the kernel on the expected reads: normal (none), sequential, random, or no-buffering, which bypasses the page cache' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l start -d 'State of the cache before each trial: cold (no page of its files is resident), warm (all are) or as-is. The first two are prepared and verified before each trial. Default: cold, unless the benchmark has another one' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l trials -d 'Minimum and maximum number of trials, as in 6..30, or an exact number' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l confidence -d 'Repeat until the 95 % interval of the first series is this small to both sides; off: do the minimum number of trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l for -d 'Time limit; the current trial is completed, and at least one is done' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l seed -d 'Seed of everything random' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l same-speed -d 'Repeat short trials during which the machine was slower than it can be by more than this; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l as-fast-as -d 'Count only trials in which the machine was as fast as in this record, for larder compare' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l format -d 'Output format' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One self-contained page with charts'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -s o -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l hosts -d 'Start this command on these hosts, one rank on each, and run the ranks together' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l ssh -d 'Command that starts a command on a host, as in \'ssh -p 2222\'; host and command are appended' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l program -d 'Path of larder on the hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l listen -d 'Under mpirun: address at which rank 0 listens for the other ranks' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l rendezvous -d 'Under mpirun: a file that rank 0 creates, with its address and the token for the other ranks. With several machines it must be on a shared file system' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l rank -d 'Number of this rank, number of ranks, and host; set by --hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -l drop-all -d 'Drop everything that the machine has cached before each cold start. Needs root, and slows down other programs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fileload" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -l files -d 'Files of each kind' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -l size -d 'Bytes of each file' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -l extents -d 'Extents of each fragmented file' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -l seed -d 'Seed of the data' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -l remove -d 'Remove the files of an earlier run in DIRECTORY, and nothing else'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from fragments" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s i -l test -d 'A test: 0 write, 1 read, 2 random, 3 backward, 4 record rewrite, 5 stride, 6 fwrite, 7 fread, 8 random mix (with -t, -l or -u only), 9 pwrite, 10 pread; 0 to 7, if none is named. May be repeated' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s s -l file -d 'A file size, instead of the range; may be repeated. With -t the file of each thread, 64MiB if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s r -l record -d 'A record size, instead of the range; may be repeated. With -t 4KiB, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s n -l min-file -d 'The smallest file; 64KiB, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s g -l max-file -d 'The largest file; 512MiB, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s y -l min-record -d 'The smallest record; 4KiB, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s q -l max-record -d 'The largest record; 16MiB, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l factor -d 'Factor from one size of a range to the next' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s o -l sync -d 'Make every write wait until it is stable: all of it (`O_SYNC`), or its data alone (`O_DSYNC`)' -r -f -a "all\t'`O_SYNC`'
data\t'`O_DSYNC`'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s j -l stride -d 'Distance of records in the stride test, in records' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s t -l threads -d 'Throughput mode: this many threads at once, each on a file of its own' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s l -l min-threads -d 'Throughput mode with each number of threads from this one on; up to this one, if -u is not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s u -l max-threads -d 'Maximum number of threads; from 1 on, if -l is not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l mix-readers -d 'Percentage of reading threads in test 8; every other thread if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l start -d 'State of the cache before each trial of a test that reads: cold, warm or as-is. The first two are prepared and verified. Warm, if not given; with --direct, which reads nothing from memory, cold' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l trials -d 'Trials of each test in each cell: the minimum and the maximum, as in 6..30, or an exact number' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l confidence -d 'Repeat each test in each cell until the 95 % interval of its first column is this small to both sides; off: do the minimum number of trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l same-speed -d 'Repeat short trials during which the machine was slower than in others of the same cell by more than this; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l seed -d 'Seed of the bytes of records' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l format -d 'Output format' -r -f -a "rows\t'A row for each cell with the rates of all tests, in kB/s; in throughput mode the rates of parent and children'
tables\t'As for a spreadsheet: a table for each column, file sizes down, record sizes across, kB/s'
text\t'Tables and sentences of all runs'
csv\t'Every value, one line each'
html\t'One self-contained page with charts'
json\t'The record'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -l page -d 'Write the page with the charts as well' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s z -l no-cross-over -d 'Measure records below 64KiB on files above 16MiB too; implied if a size or the range of records is given'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s I -l direct -d 'Bypass the page cache (`O_DIRECT`)'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s c -l close-counts -d 'Include closing the file in the time of each pass'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s x -l no-stonewall -d 'Let each thread in throughput mode process its whole file; otherwise all end with the first one that finishes, as in IOzone'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s e -l flush-counts -d 'Show rates of writes that include the flush; the record has both'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from iozone" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l number -d 'Number of files before the transactions [default: 500]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l transactions -d 'Transactions: each reads or appends, and creates or deletes [default: 500]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l size -d 'Sizes of files, as in 500-10000 or 4KiB [default: 500-10000]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l postmark-seed -d 'Seed of the random numbers of PostMark [default: 42]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l location -d 'A directory for the files, optionally with a weight; may be repeated [default: the current one]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l subdirectories -d 'Subdirectories in each location; 0 and 1 are none [default: 0]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l read -d 'Bytes of one read [default: 512]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l write -d 'Bytes of one write [default: 512]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l buffering -d 'Buffer reads and writes, like C\'s stdio [default: true]' -r -f -a "true\t''
false\t''"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l bias-read -d 'Reads, as opposed to appends, out of ten operations; -1 for neither [default: 5]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l bias-create -d 'Creations, as opposed to deletions, out of ten operations; -1 for neither [default: 5]' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l threads -d 'Threads, each with its own files and random numbers, and each doing the whole workload' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l fsync -d 'Time at which written data is made stable: none, close (of each file), transaction, or end (of each phase)' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l data -d 'Content of the files: random (incompressible, no duplicates) or classic (characters, the same in each)' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l start -d 'State of the cache before each trial: cold (no page of its files is resident), warm (all are) or as-is. The first two are prepared and verified before each trial. Default: cold, unless the benchmark has another one' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l trials -d 'Minimum and maximum number of trials, as in 6..30, or an exact number' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l confidence -d 'Repeat until the 95 % interval of the first series is this small to both sides; off: do the minimum number of trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l for -d 'Time limit; the current trial is completed, and at least one is done' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l seed -d 'Seed of everything random' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l same-speed -d 'Repeat short trials during which the machine was slower than it can be by more than this; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l as-fast-as -d 'Count only trials in which the machine was as fast as in this record, for larder compare' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l format -d 'Output format' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One self-contained page with charts'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -s o -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l hosts -d 'Start this command on these hosts, one rank on each, and run the ranks together' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l ssh -d 'Command that starts a command on a host, as in \'ssh -p 2222\'; host and command are appended' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l program -d 'Path of larder on the hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l listen -d 'Under mpirun: address at which rank 0 listens for the other ranks' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l rendezvous -d 'Under mpirun: a file that rank 0 creates, with its address and the token for the other ranks. With several machines it must be on a shared file system' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l rank -d 'Number of this rank, number of ranks, and host; set by --hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l classic -d 'Behave exactly as the original: script, then prompt, whole seconds, errors ignored, one run for each command. Takes no other flags'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -l drop-all -d 'Drop everything that the machine has cached before each cold start. Needs root, and slows down other programs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from postmark" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l in-process -d 'Use the cache of this program itself instead, in front of this store' -r -f -a "memory\t'Memory, without latency'
disk\t'A modelled disk of 7,200 rpm, in real time'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l memory -d 'Size of the cache: that of --in-process, or of the one in front of TARGET' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l policy -d 'Replacement policy of --in-process' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l size -d 'Bytes of the target that are used; 64MiB for a new file, else all of it' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l scenario -d 'Use a multiple of the cache size, as in the published measurements' -r -f -a "fits\t'The file fits: 16 MB'
overrun\t'The file is five times the cache: 128 MB of 26 MB'
favoured\t'The same file with more memory for the cache: 128 MB of 40 MB'
leak\t'The file fits, and a separate process takes memory: step by step in the first half of each trial, and keeps it to the end'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l leak -d 'Maximum memory of the process of --scenario leak; a quarter of the available memory, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l record -d 'Bytes of a record' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l pattern -d 'Operations on successive records: R reads, W writes' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l order -d 'Start positions of cycles' -r -f -a "normal\t'Normally distributed, folded into the file'
uniform\t'Uniformly distributed'
sequential\t'At the end of the previous cycle'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l seek -d 'Mean and standard deviation of normal seeks, in records, as in 2000,300; the middle and a sixth of the file, if not given' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l cycle -d 'Records of a cycle, mean and standard deviation' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l think -d 'Milliseconds of think time before each cycle, mean and standard deviation' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l compute -d 'Milliseconds of computing at the end of each cycle, mean and standard deviation' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l threads -d 'Threads, each with its own requests' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l length -d 'Duration of a trial; its second half is measured' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l start -d 'State of the cache before each trial: cold (no page of its files is resident), warm (all are) or as-is. The first two are prepared and verified before each trial. Default: cold, unless the benchmark has another one' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l trials -d 'Minimum and maximum number of trials, as in 6..30, or an exact number' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l confidence -d 'Repeat until the 95 % interval of the first series is this small to both sides; off: do the minimum number of trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l for -d 'Time limit; the current trial is completed, and at least one is done' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l seed -d 'Seed of everything random' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l same-speed -d 'Repeat short trials during which the machine was slower than it can be by more than this; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l as-fast-as -d 'Count only trials in which the machine was as fast as in this record, for larder compare' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l format -d 'Output format' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One self-contained page with charts'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -s o -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l hosts -d 'Start this command on these hosts, one rank on each, and run the ranks together' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l ssh -d 'Command that starts a command on a host, as in \'ssh -p 2222\'; host and command are appended' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l program -d 'Path of larder on the hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l listen -d 'Under mpirun: address at which rank 0 listens for the other ranks' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l rendezvous -d 'Under mpirun: a file that rank 0 creates, with its address and the token for the other ranks. With several machines it must be on a shared file system' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l rank -d 'Number of this rank, number of ranks, and host; set by --hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l unbuffered -d 'Bypass the page cache, with direct I/O'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l mapped -d 'Map the file into memory, and access the mapping'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l overwrite -d 'Write to an existing TARGET. Its data is lost'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -l drop-all -d 'Drop everything that the machine has cached before each cold start. Needs root, and slows down other programs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l clients -d 'Clients of each step' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l mix -d 'Weights of transactions that read an item, write one, and copy one to another' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l think -d 'Milliseconds of think time before each transaction, mean and standard deviation' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l items -d 'Items of each client' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l size -d 'Bytes of an item' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l record -d 'Bytes of one read or write' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l warm-up -d 'Duration of each step before its measurement' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l measure -d 'Duration of the measurement of each step' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l start -d 'State of the cache before each trial: cold (no page of its files is resident), warm (all are) or as-is. The first two are prepared and verified before each trial. Default: cold, unless the benchmark has another one' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l trials -d 'Minimum and maximum number of trials, as in 6..30, or an exact number' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l confidence -d 'Repeat until the 95 % interval of the first series is this small to both sides; off: do the minimum number of trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l for -d 'Time limit; the current trial is completed, and at least one is done' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l seed -d 'Seed of everything random' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l same-speed -d 'Repeat short trials during which the machine was slower than it can be by more than this; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l as-fast-as -d 'Count only trials in which the machine was as fast as in this record, for larder compare' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l format -d 'Output format' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One self-contained page with charts'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -s o -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l hosts -d 'Start this command on these hosts, one rank on each, and run the ranks together' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l ssh -d 'Command that starts a command on a host, as in \'ssh -p 2222\'; host and command are appended' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l program -d 'Path of larder on the hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l listen -d 'Under mpirun: address at which rank 0 listens for the other ranks' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l rendezvous -d 'Under mpirun: a file that rank 0 creates, with its address and the token for the other ranks. With several machines it must be on a shared file system' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l rank -d 'Number of this rank, number of ranks, and host; set by --hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l sync -d 'Make the writes of a transaction stable before it ends'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l unbuffered -d 'Bypass the page cache, with direct I/O'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l overwrite -d 'Write to an existing TARGET. Its data is lost'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -l drop-all -d 'Drop everything that the machine has cached before each cold start. Needs root, and slows down other programs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from server" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l workload -d 'The benchmark. Its own arguments follow --' -r -f -a "postmark\t'Many small files; see larder bench postmark'
probe\t'Random records of a file; see larder bench probe'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l fs -d 'File systems: ext2, ext3, ext4, xfs, btrfs, f2fs, ntfs. Those that this kernel lacks are skipped with a note' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l scheduler -d 'Schedulers of the device, by their kernel names' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l variant -d 'Options of file systems and priority of the benchmark, as in \'tuned=-b 1024; noatime\' or \'tuned=fs: ext4; mkfs: -b 1024; mount: noatime; nice: 5; policy: batch; iopriority: idle\'. May be repeated; \'plain=\' is all defaults' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l size -d 'Size of each device' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l scratch -d 'Directory for the image of the device, a sparse file' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l start -d 'State of the cache before each trial: cold (no page of its files is resident), warm (all are) or as-is. The first two are prepared and verified before each trial. Default: cold, unless the benchmark has another one' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l trials -d 'Minimum and maximum number of trials, as in 6..30, or an exact number' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l confidence -d 'Repeat until the 95 % interval of the first series is this small to both sides; off: do the minimum number of trials' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l for -d 'Time limit; the current trial is completed, and at least one is done' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l seed -d 'Seed of everything random' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l same-speed -d 'Repeat short trials during which the machine was slower than it can be by more than this; off: all count' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l as-fast-as -d 'Count only trials in which the machine was as fast as in this record, for larder compare' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l format -d 'Output format' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One self-contained page with charts'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -s o -l output -d 'Write the record as well, for larder compare and larder report' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l hosts -d 'Start this command on these hosts, one rank on each, and run the ranks together' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l ssh -d 'Command that starts a command on a host, as in \'ssh -p 2222\'; host and command are appended' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l program -d 'Path of larder on the hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l listen -d 'Under mpirun: address at which rank 0 listens for the other ranks' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l rendezvous -d 'Under mpirun: a file that rank 0 creates, with its address and the token for the other ranks. With several machines it must be on a shared file system' -r -F
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l rank -d 'Number of this rank, number of ranks, and host; set by --hosts' -r
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -l drop-all -d 'Drop everything that the machine has cached before each cold start. Needs root, and slows down other programs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from matrix" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from cold" -l drop-all -d 'Drop everything that the machine has cached as well: inodes, directories, and caches below FUSE and loop devices. Needs root, and slows down other programs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from cold" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from warm" -l drop-all -d 'Drop everything that the machine has cached as well: inodes, directories, and caches below FUSE and loop devices. Needs root, and slows down other programs'
complete -c larder -n "__fish_larder_using_subcommand bench; and __fish_seen_subcommand_from warm" -s h -l help -d 'Print help'
complete -c larder -n "__fish_larder_using_subcommand try" -l memory -d 'Memory of the cache, including its metadata' -r
complete -c larder -n "__fish_larder_using_subcommand try" -l workload -d 'The benchmark. Its own arguments may follow --' -r -f -a "postmark\t'Many small files: create, read, append, delete'
fileload\t'A file read in order, or at random'
probe\t'Random records of a file, read and written'"
complete -c larder -n "__fish_larder_using_subcommand try" -l flush -d 'Mode of fsync in the cache: keep its guarantee, or ignore it, which loses unwritten data in a crash' -r
complete -c larder -n "__fish_larder_using_subcommand try" -l trials -d 'Trials of each side from each start; a verdict needs four' -r
complete -c larder -n "__fish_larder_using_subcommand try" -s o -l output -d 'File for the page with the charts, replacing it; JSON if the name ends in .json' -r -F
complete -c larder -n "__fish_larder_using_subcommand try" -l yes -d 'Use more than a tenth of the free space without confirmation'
complete -c larder -n "__fish_larder_using_subcommand try" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand compare" -l threshold -d 'Smallest relative difference that counts' -r
complete -c larder -n "__fish_larder_using_subcommand compare" -l format -d 'Output format' -r -f -a "text\t'A table, and further differences'
csv\t'The table alone'
json\t'All data'"
complete -c larder -n "__fish_larder_using_subcommand compare" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand report" -l format -d 'Output format; html if the name of the output ends in .html' -r -f -a "text\t'Tables and sentences'
csv\t'Every value, one line each'
html\t'One self-contained page with charts'
json\t'The record, in the newest version of the format'"
complete -c larder -n "__fish_larder_using_subcommand report" -s o -l output -d 'Output file, instead of standard output. It is written under another name and renamed' -r -F
complete -c larder -n "__fish_larder_using_subcommand report" -l names -d 'Names of counters on the machine of a log of Perfmon, if larder does not know them: the value Counter in its registry for its language (docs/perfmon.md)' -r -F
complete -c larder -n "__fish_larder_using_subcommand report" -l decimal -d 'Decimal separator of a log of Perfmon, if the log itself does not show it' -r -f -a "point\t'1.5'
comma\t'1,5'"
complete -c larder -n "__fish_larder_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c larder -n "__fish_larder_using_subcommand top" -l interval -d 'Refresh interval' -r
complete -c larder -n "__fish_larder_using_subcommand top" -l view -d 'Initial view' -r -f -a "files\t'Open files and their resident parts'
processes\t'Reads and writes of processes'
disks\t'Disk activity'
caches\t'Caches that larder serves on this machine'
uses\t'Files by process, with hit ratios; needs root'"
complete -c larder -n "__fish_larder_using_subcommand top" -s o -l output -d 'Record from the start, one line of JSON for each refresh; if the file exists, under the next free name' -r -F
complete -c larder -n "__fish_larder_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
