//! Files of settings.

use super::*;

/// Reads a file of settings with this text.
fn read(name: &str, text: &str) -> Result<Options, String> {
    let file = std::env::temp_dir().join(format!("namewall-settings-{name}-{}", std::process::id()));
    std::fs::write(&file, text).expect("a temporary file");
    let read = Options::default().with_file(&file).map_err(|error| format!("{error:#}"));
    let _ = std::fs::remove_file(&file);
    read.map_err(|error| error.replace(&*file.display().to_string(), "FILE"))
}

fn settings(cluster_domain: Option<&str>) -> Settings {
    Settings {
        pod_network: Vec::new(),
        api_server: Vec::new(),
        cluster_domain: cluster_domain.map(|domain| domain.parse().expect("a name")),
        never_lease: Vec::new(),
        nat64_prefix: Vec::new(),
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let wrong = |text: &str| read("wrong", text).map(|_| ()).expect_err("it is wrong");
    let unknown = wrong("upstream: [9.9.9.9]\nupsteam: [9.9.9.9]\n");
    assert!(unknown.starts_with("FILE:2:1: there is no setting `upsteam`"), "{unknown}");
    let time = wrong("node: n1\n\nholdLimit: soon\n");
    assert!(time.starts_with("FILE:3:12: holdLimit: `soon` is no time"), "{time}");
    let yaml = wrong("node: n1\nupstream: [9.9.9.9\n");
    assert!(yaml.starts_with("FILE:"), "{yaml}");
    assert!(yaml.split(':').nth(1).is_some_and(|line| line.parse::<u32>().is_ok()), "{yaml}");
}

#[test]
fn the_cluster_is_described_by_the_file_where_the_command_line_says_nothing() {
    let file =
        read("cluster", "apiServer: [192.0.2.1, '192.0.2.2:443']\nclusterDomain: k8s.example\n").expect("it is right");
    let servers: Vec<String> = file.cluster(&settings(None)).api_server.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["192.0.2.1:6443", "192.0.2.2:443"]);
    assert_eq!(file.cluster_domain(&settings(None)).as_str(), "k8s.example");
    assert_eq!(file.cluster_domain(&settings(Some("other.example"))).as_str(), "other.example");
    let said = Settings { api_server: vec![([192, 0, 2, 9], 6443).into()], ..settings(None) };
    assert_eq!(file.cluster(&said).api_server, said.api_server);
    let nothing = Options::default();
    assert_eq!(nothing.cluster_domain(&settings(None)).as_str(), "cluster.local");
    for wrong in ["apiServer: [example.com]", "clusterDomain: a..b"] {
        assert!(read("wrong-cluster", wrong).is_err(), "{wrong}");
    }
}
