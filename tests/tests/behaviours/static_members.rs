//! Static members (KIP-345): row 49.

use std::time::Duration;

use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::{HeartbeatRequest, LeaveGroupRequest};
use kop_tests::raw::Raw;

use crate::groups::{find_coordinator, group, join_request, sync_request};
use crate::kit::{start, text};

const FENCED_INSTANCE_ID: i16 = 82;

fn heartbeat(raw: &mut Raw, member: &str, generation: i32) -> i16 {
    let request = HeartbeatRequest::default()
        .with_group_id(group("static"))
        .with_generation_id(generation)
        .with_member_id(text(member))
        .with_group_instance_id(Some(text("instance")));
    raw.call(3, &request).error_code
}

#[test]
fn a_static_member_that_comes_back_keeps_its_assignment_and_its_old_self_is_fenced() {
    let (broker, mut raw) = start();
    find_coordinator(&mut raw, "static");
    let first = raw.call(5, &join_request("static", "", Some("instance")));
    assert_eq!(first.error_code, 0, "a static member needs no second try");
    let sync = sync_request("static", &first, &[(&first.member_id, "kept")]);
    let synced = raw.call(3, &sync.with_group_instance_id(Some(text("instance"))));
    assert_eq!(&synced.assignment[..], b"kept");
    // It comes back without its member id, as after a restart.
    let mut again = Raw::connect(broker.address());
    let second = again.call(5, &join_request("static", "", Some("instance")));
    assert_eq!(second.error_code, 0);
    assert_ne!(second.member_id, first.member_id);
    assert_eq!(second.generation_id, first.generation_id, "no rebalance");
    let sync = sync_request("static", &second, &[]).with_group_instance_id(Some(text("instance")));
    let synced = again.call(3, &sync);
    assert_eq!(
        (synced.error_code, &synced.assignment[..]),
        (0, &b"kept"[..])
    );
    assert_eq!(
        heartbeat(&mut again, &second.member_id, second.generation_id),
        0
    );
    assert_eq!(
        heartbeat(&mut raw, &first.member_id, first.generation_id),
        FENCED_INSTANCE_ID
    );
}

#[test]
fn a_static_member_is_removed_by_its_instance_id() {
    let (_broker, mut raw) = start();
    find_coordinator(&mut raw, "static");
    let joined = raw.call(5, &join_request("static", "", Some("instance")));
    let leave = |instance: &str| {
        let member = MemberIdentity::default().with_group_instance_id(Some(text(instance)));
        LeaveGroupRequest::default()
            .with_group_id(group("static"))
            .with_members(vec![member])
    };
    for version in 3..=5 {
        let reply = raw.call(version, &leave("unknown"));
        assert_eq!(reply.members[0].error_code, 25, "version {version}");
    }
    assert_eq!(raw.call(5, &leave("instance")).members[0].error_code, 0);
    assert!(raw.is_silent_for(Duration::from_millis(100)));
    assert_eq!(
        heartbeat(&mut raw, &joined.member_id, joined.generation_id),
        25
    );
}
