//! Valid and invalid configuration files.

use super::*;
use larder_core::cache::ShareMode;
use larder_core::curve::candidates::CANDIDATES;
use larder_core::curve::choice::PolicyChoice;
use larder_core::mode::WriteMode;
use larder_core::tunables::Tunable;

fn read(text: &str) -> Result<ConfigFile, String> {
    ConfigFile::parse(Path::new("f.toml"), text).map_err(|error| error.to_string())
}

/// Returns the plan of a file and of a command line with settings and volumes.
fn plan_with(text: &str, (settings, volumes): (&[(&str, &str)], &[&str])) -> Result<Plan, String> {
    let file = read(text)?;
    let assignments = settings.iter().map(|(name, value)| Assignment::parse(name, value));
    let volumes = volumes.iter().map(|text| VolumeSource::parse(text).unwrap());
    let command_line = Configuration {
        assignments: assignments.collect(),
        volumes: volumes.collect(),
        ..Configuration::default()
    };
    file.plan(&file.with(&command_line)).map_err(|error| error.to_string())
}

fn plan_of(text: &str) -> Result<Plan, String> {
    plan_with(text, (&[], &[]))
}

const GOOD: &str = r#"
memory = "64MiB"
page-size = "8KiB"
lock = false
set = { age-max = 2000 }

[[volume]]
name = "db"
path = "/data/db=1.img"
policy = "arc"
min = "16MiB"
set = { age-max = 3000, idle-delay = 7 }

[[volume]]
path = "/data/logs.img"
write-mode = "through"
"#;

#[test]
fn a_file_says_what_the_command_line_can_say() {
    let plan = plan_of(GOOD).unwrap();
    assert_eq!(plan.server.memory_bytes, 64 << 20);
    let [db, logs] = &plan.volumes[..] else { panic!("{plan:?}") };
    assert_eq!((db.name.as_str(), db.path.to_str()), ("db", Some("/data/db=1.img")));
    assert_eq!((logs.name.as_str(), logs.path.to_str()), ("logs", Some("/data/logs.img")));
    let policies = [db.policy, logs.policy].map(PolicyChoice::name);
    assert_eq!(policies, ["arc", "s3fifo"]);
    assert_eq!((db.page_blocks, logs.page_blocks), (2, 2));
    assert_eq!((db.min_frames, logs.min_frames), (4096, 0));
    assert_eq!((db.write_mode, logs.write_mode), (WriteMode::Back, WriteMode::Through));
    let age = |volume: &crate::volume_plan::VolumePlan| volume.tunables.get(Tunable::AgeMax);
    assert_eq!((age(db), age(logs)), (3000, 2000));
}

#[test]
fn the_command_line_goes_before_the_file() {
    let settings = [("memory", "32MiB"), ("policy", "lru")];
    let plan = plan_with(GOOD, (&settings, &["more=/data/more.img"])).unwrap();
    assert_eq!(plan.server.memory_bytes, 32 << 20);
    let policies: Vec<_> =
        plan.volumes.iter().map(|volume| (volume.name.as_str(), volume.policy.name())).collect();
    assert_eq!(policies, [("db", "arc"), ("logs", "lru"), ("more", "lru")]);
}

#[test]
fn giving_back_is_asked_for_with_a_floor_or_without() {
    let floor =
        |value: &str| plan_of(&GOOD.replace("lock = false", value)).unwrap().server.give_back;
    assert_eq!(floor("give-back = true"), Some(0));
    assert_eq!(floor("give-back = \"16MiB\""), Some(16 << 20));
    assert_eq!(floor("give-back = false"), None);
    assert_eq!(floor("lock = true"), None);
}

#[test]
fn what_the_cache_decides_by_itself_is_asked_for_in_the_file_too() {
    let file = GOOD.replace("\"arc\"", "\"auto\"").replace("lock = false", "share = \"auto\"");
    let plan = plan_of(&file).unwrap();
    assert_eq!(plan.server.share, ShareMode::Auto);
    let policies: Vec<_> = plan.volumes.iter().map(|volume| volume.policy).collect();
    assert_eq!(policies, [PolicyChoice::Auto, PolicyChoice::default()]);
    // Each frame has enough policy metadata for every candidate.
    let most = CANDIDATES.iter().map(|kind| kind.bytes_per_page()).max().unwrap();
    assert_eq!(plan.policy_bytes(), most);
    assert!(most > PolicyChoice::default().bytes_per_page(), "some need more than the first");
}

#[test]
fn a_volume_without_a_name_is_named_and_found_as_on_the_command_line() {
    let only = |path: &str| {
        let plan = plan_of(&format!("[[volume]]\npath = \"{path}\"\nset = {{ age-max = 70 }}"))?;
        let volume = plan.volumes.into_iter().next().unwrap();
        assert_eq!(volume.tunables.get(Tunable::AgeMax), 70);
        Ok::<_, String>((volume.name, volume.path.to_str().unwrap().to_owned()))
    };
    let paths = [
        ("/data/a=b.img", "a=b"),
        ("a=b.img", "a=b"),
        ("nbd://host/a/disk?", "disk"),
        ("nbd+unix:///vol?socket=/run/s", "vol"),
    ];
    for (path, name) in paths {
        assert_eq!(only(path).unwrap(), (name.to_owned(), path.to_owned()));
    }
    // A path that looks like a flag is not parsed as one.
    assert!(only("--lock").unwrap_err().contains("line 1: \"--lock\" cannot be a name"));
    assert!(only("nbd://").unwrap_err().contains("line 1: "));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let volume = "\n[[volume]]\npath = \"/d.img\"\n";
    let known = [
        ("memori = \"1GiB\"", "line 1: there is no key \"memori\"; did you mean \"memory\"?"),
        (
            "zzzzzzzzzzzzzzz = 1",
            "line 1: there is no key \"zzzzzzzzzzzzzzz\"; `larder help settings` lists all",
        ),
        ("config = \"x\"", "line 1: there is no key \"config\""),
        ("\nmemory = \"much\"", "line 2: \"much\" is not a size"),
        ("memory = true", "line 1: \"memory\" must be a string"),
        ("lock = \"yes\"", "line 1: \"lock\" must be true or false"),
        ("set = 1", "line 1: \"set\" is a table"),
        ("set = { age-max = \"x\" }", "line 1: \"x\" is not a time"),
        (
            "set = { age-max = 1.5 }",
            "line 1: \"age-max\" must be a whole number, or a size or time in quotes",
        ),
        ("age-max = 70\nset = { age-max = 80 }", "line 2: \"age-max\" is given twice"),
        ("age-max = 0x9", "line 1: age-max is 9, must be 10 to 3600000"),
        ("counters = \"\"", "line 1: a path cannot be empty"),
        ("memory = ", "line 1: "),
        ("memory = \"1MiB\"", "line 1: use 1 MiB of memory: the minimum is 8 MiB"),
        ("share = \"all\"", "line 1: there is no way to share \"all\"; write one of coldest, auto"),
        ("policy = \"a=lru\"", "line 1: \"a=lru\" names a volume"),
        ("policy = \"mru\"", "line 1: there is no policy \"mru\""),
        ("preset = \"os2\"", "line 1: there is no preset \"os2\""),
        ("control-tcp = \"0.0.0.0:1\"", "line 1: \"0.0.0.0:1\" is not of this machine alone"),
    ];
    for (text, reason) in known {
        let error = plan_of(&format!("{text}{volume}")).unwrap_err();
        let error = error.strip_prefix("use f.toml: ").expect("the file is named");
        assert!(error.contains(reason), "{text}: {error}");
    }
    let volumes = [
        ("polcy = \"lru\"", "line 3: there is no key \"polcy\"; did you mean \"policy\"?"),
        ("memory = \"1GiB\"", "line 3: \"memory\" is a setting of the server: write it above"),
        ("name = \"a/b\"", "line 1: \"a/b\" cannot be a name"),
        ("name = 7", "line 3: \"name\" must be a string"),
        ("min = \"2GiB\"\nmax = \"1GiB\"", "line 3: set min of \"d\": it is above the max"),
        ("max = \"1MiB\"", "line 3: set max of \"d\": it is below 2MiB"),
        ("set = { age-max = 1 }", "line 3: age-max is 1, must be 10 to 3600000"),
        ("[[volume]]\npath = \"/d.img\"", "line 4: serve two volumes called \"d\""),
    ];
    for (text, reason) in volumes {
        let error = plan_of(&format!("[[volume]]\npath = \"/d.img\"\n{text}")).unwrap_err();
        let error = error.strip_prefix("use f.toml: ").expect("the file is named");
        assert!(error.contains(reason), "{text}: {error}");
    }
    let error = plan_of("[[volume]]\nname = \"d\"").unwrap_err();
    assert_eq!(error, "use f.toml: line 1: a volume needs a \"path\"");
    let error = plan_of("volume = 1").unwrap_err();
    assert!(error.starts_with("use f.toml: line 1: \"volume\" is a table in an array"), "{error}");
    // The command line may name the volumes.
    assert!(plan_of("memory = \"16MiB\"").unwrap().volumes.is_empty());
    let error = plan_of(&format!("control-tcp = \"127.0.0.1:1\"{volume}")).unwrap_err();
    assert_eq!(error, "use f.toml: line 1: set control-tcp: it needs control-token");
    let error = plan_of(&format!("give-back = \"1TiB\"{volume}")).unwrap_err();
    assert!(error.contains("1 TiB: memory is only 256 MiB"), "keys, not flags: {error}");
    let mounted = tempfile::Builder::new().prefix("a--record").tempdir().unwrap();
    let path = mounted.path().display();
    let error = plan_of(&format!("record = \"{path}/s\"\nfuse = \"{path}\"{volume}")).unwrap_err();
    assert!(error.contains(&format!("use {path}/s for record: it is in {path}")), "{error}");
    let long = "k".repeat(1 << 19);
    let error = plan_of(&format!("{long} = 1{volume}")).unwrap_err();
    assert!(error.len() < 300 && error.contains("kkk...\""), "{error}");
    let error = plan_of(&format!("set = {{ {long} = 1 }}{volume}")).unwrap_err();
    assert!(error.len() < 300 && error.contains("kkk...\""), "{error}");
}
