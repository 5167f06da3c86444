//! Every host of this crate passes the contract of hosts.

#![expect(clippy::expect_used, reason = "assertions of tests")]

use std::sync::Arc;

use bytes::Bytes;
use handler_api::contract::{Running, Subject, Witness};
use handler_api::{Handle, HostServices, Position, capability};
use host_shim::events::EventSink;

/// Hands on what a host tells.
struct Ear(Arc<Witness>);

impl EventSink for Ear {
    fn event(&self, op: u32, payload: Bytes) {
        self.0.event(op, payload);
    }

    fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        self.0.end_moved(handle, position, index);
    }
}

mod embedded {
    use super::*;
    use host_shim::embedded::{EmbeddedBroker, EmbeddedConfig};

    struct Embedded {
        services: Arc<dyn HostServices>,
        _broker: EmbeddedBroker,
        _dir: tempfile::TempDir,
    }

    impl Running for Embedded {
        fn services(&self) -> Arc<dyn HostServices> {
            Arc::clone(&self.services)
        }
    }

    /// The embedded broker, with or without waiting for the disk.
    struct OnDisk {
        sync_data: bool,
    }

    impl Subject for OnDisk {
        fn start(&self, witness: Arc<Witness>) -> Box<dyn Running> {
            let dir = tempfile::tempdir().expect("a directory");
            let broker = EmbeddedBroker::open(EmbeddedConfig {
                sync_data: self.sync_data,
                ..EmbeddedConfig::new(dir.path())
            })
            .expect("a fresh directory opens");
            Box::new(Embedded {
                services: broker.attach("data".into(), Arc::new(Ear(witness))),
                _broker: broker,
                _dir: dir,
            })
        }
    }

    mod after_write {
        use super::OnDisk;
        handler_api::contract_tests!(OnDisk { sync_data: false });
    }

    mod after_sync {
        use super::OnDisk;
        handler_api::contract_tests!(OnDisk { sync_data: true });
    }
}

mod sim {
    use super::*;
    use host_shim::sim::{Faults, SimHost};

    struct Simulated {
        sim: SimHost,
        services: Arc<dyn HostServices>,
    }

    impl Running for Simulated {
        fn services(&self) -> Arc<dyn HostServices> {
            Arc::clone(&self.services)
        }

        fn drive(&self) {
            self.sim.step();
        }
    }

    struct InMemory {
        faults: fn() -> Faults,
        capabilities: u64,
    }

    /// As many as a simulated broker has unless it is told otherwise.
    const MOST: u64 = capability::REPLACE_LEDGER | capability::TRIM_TO_ENTRY;

    impl Subject for InMemory {
        fn start(&self, witness: Arc<Witness>) -> Box<dyn Running> {
            let sim = SimHost::with_faults(1, (self.faults)());
            sim.set_capabilities(self.capabilities);
            let services = sim.attach("data", Some(Arc::new(Ear(witness))));
            Box::new(Simulated { sim, services })
        }
    }

    mod at_once {
        use super::{Faults, InMemory, MOST};
        handler_api::contract_tests!(InMemory {
            faults: Faults::none,
            capabilities: MOST
        });
    }

    mod delayed {
        use super::{Faults, InMemory, MOST};
        handler_api::contract_tests!(InMemory {
            faults: Faults::slow,
            capabilities: MOST
        });
    }

    /// What a Pulsar broker can do.
    mod as_pulsar {
        use super::{Faults, InMemory, capability};
        handler_api::contract_tests!(InMemory {
            faults: Faults::slow,
            capabilities: capability::HOST_RETENTION
        });
    }
}
