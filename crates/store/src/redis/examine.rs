//! Health of the server: its version, whether it keeps leases on disk, its replicas, and whether it evicts keys.

use std::collections::BTreeSet;

use lockkeeper_core::resource::Key;

use super::RedisStore;
use super::resp::Reply;
use super::values::record_from;
use crate::{Examination, Risk, StoreError};

pub(super) fn examine(store: &RedisStore, thorough: bool) -> Result<Examination, StoreError> {
    let found = store.server.commands(&[command(&["INFO"])])?;
    let info = found.first().and_then(Reply::text).unwrap_or_default();
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default()
    };
    // A managed server may not show its configuration.
    let config = |name: &str| {
        let found = store.server.commands(&[command(&["CONFIG", "GET", name])]).ok()?;
        Some(found.first()?.list()?.get(1)?.text()?.to_owned())
    };
    let version = match field("valkey_version") {
        "" => format!("Redis {}", field("redis_version")),
        version => format!("Valkey {version}"),
    };
    let mut risks = Vec::new();
    let kept = if field("aof_enabled") == "1" {
        let when = config("appendfsync").unwrap_or_else(|| "when it likes".to_owned());
        format!("append-only file, fsync {when}")
    } else if config("save").is_none_or(|save| !save.is_empty()) {
        "snapshots on disk now and then".to_owned()
    } else {
        risks.push(Risk::Forgets);
        "nothing on disk".to_owned()
    };
    let policy = field("maxmemory_policy");
    if field("maxmemory") != "0" && policy != "noeviction" {
        risks.push(Risk::Evicts { policy: policy.to_owned() });
    }
    let replicas = field("connected_slaves").parse().unwrap_or(0);
    if replicas > 0 {
        risks.push(Risk::Replicas { count: replicas });
    }
    let flaws = if thorough { flaws(store)? } else { Vec::new() };
    Ok(Examination { backend: format!("{version} ({kept})"), schema: None, flaws, risks })
}

/// Index entries without a record, and records without their index entries.
fn flaws(store: &RedisStore) -> Result<Vec<String>, StoreError> {
    let [records, keys] = [1, 2].map(|place| store.server.key(place));
    let found = store.server.commands(&[
        command(&["MULTI"]),
        command(&["HVALS", records]),
        command(&["ZRANGE", keys, "0", "-1"]),
        command(&["EXEC"]),
    ])?;
    let [records, keys] = found.last().and_then(Reply::list).unwrap_or_default() else {
        return Ok(Vec::new());
    };
    let mut expected = BTreeSet::new();
    for value in records.list().unwrap_or_default().iter().filter_map(Reply::bytes) {
        let (_, found) = record_from(value)?;
        let member = |key: &Key| format!("{}\0{}", key.as_str(), found.id().0).into_bytes();
        expected.extend(found.keys().iter().map(member));
    }
    let there: BTreeSet<Vec<u8>> =
        keys.list().unwrap_or_default().iter().filter_map(|key| key.bytes().map(<[u8]>::to_vec)).collect();
    let flaw = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
    let found = [
        flaw(there.difference(&expected).count(), "keys of no record"),
        flaw(expected.difference(&there).count(), "keys are missing"),
    ];
    Ok(found.into_iter().flatten().collect())
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
