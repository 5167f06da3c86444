//! `conf/standalone.conf` against what reads it: the host and the plugin.

use std::path::Path;

use host_shim::config::{HostConfig, Sources};

#[test]
fn every_setting_of_the_shipped_configuration_is_known_and_has_an_effect() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/standalone.conf");
    let config = Sources::default().file(&path).unwrap().load().unwrap();
    assert_eq!(config.warnings, [""; 0]);
    let kafka = kop_handler::config::Config::parse(&config.for_plugins()).unwrap();
    assert_eq!(kafka.warnings, [""; 0]);
    let host = HostConfig::SETTINGS.iter().map(|setting| setting.key);
    let plugin = kop_handler::config::Config::SETTINGS.iter();
    let known: Vec<&str> = host
        .chain(plugin.map(|setting| setting.key))
        .chain(["kafkaListeners", "kafkaAdvertisedListeners"])
        .collect();
    let text = std::fs::read_to_string(&path).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let key = line.split('=').next().unwrap_or_default();
        assert!(key.is_empty() || known.contains(&key), "{key}");
    }
}
