//! Claims and alerts as JSON: the same words in every store and in `--json`.

use std::num::NonZeroU32;

use std::time::Duration;

use lockkeeper_core::alert::Alert;
use lockkeeper_core::id::{HolderId, LeaseId};
use lockkeeper_core::liveness::{Contract, Origin, ProcessRef, Proof, Voucher};
use lockkeeper_core::record::Claim;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Ttl;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A claim as stores write it down: times in microseconds, what is not there left out.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenClaim {
    owner: String,
    resources: Vec<WrittenResource>,
    proof: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
    host: String,
    boot: String,
    pid_namespace: u64,
    contract: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenResource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    mode: String,
}

/// An alert, in the shape that every interface gives it.
pub fn alert_to_json(alert: &Alert) -> Value {
    json!({
        "code": alert.code(),
        "value": alert.value(),
        "limit": alert.limit(),
        "message": alert.to_string(),
        "hint": alert.hint(),
    })
}

/// A claim as text.
pub fn claim_to_json(claim: &Claim) -> String {
    let holder = match claim.proof.voucher {
        Voucher::KernelLock { holder, .. } => Some(holder.0),
        Voucher::Process(_) | Voucher::Time => None,
    };
    let process = claim.proof.process();
    let written = WrittenClaim {
        owner: claim.owner.as_str().to_owned(),
        resources: claim.resources.iter().map(WrittenResource::of).collect(),
        proof: claim.proof.voucher.to_string(),
        holder,
        pid: process.map(|process| process.pid),
        started: process.map(|process| process.started),
        host: claim.proof.origin.host.clone(),
        boot: claim.proof.origin.boot.clone(),
        pid_namespace: claim.proof.origin.pid_namespace,
        contract: claim.contract.to_string(),
        ttl: claim.ttl.map(|ttl| u64::try_from(ttl.get().as_micros()).unwrap_or(u64::MAX)),
        reason: claim.reason.clone(),
        ticket: claim.ticket.as_ref().map(ToString::to_string),
    };
    serde_json::to_string(&written).expect("texts and numbers can always be written")
}

/// Reads what [`claim_to_json`] wrote; nothing else is taken for a claim.
pub fn claim_from_json(text: &str) -> Option<Claim> {
    let written: WrittenClaim = serde_json::from_str(text).ok()?;
    let process = || Some(ProcessRef { pid: written.pid?, started: written.started? });
    let voucher = match written.proof.as_str() {
        "kernel-lock" => Voucher::KernelLock { holder: HolderId(written.holder?), process: process()? },
        "process" => Voucher::Process(process()?),
        "ttl" => Voucher::Time,
        _ => return None,
    };
    let contract = match written.contract.as_str() {
        "strict" => Contract::Strict,
        "lease" => Contract::Lease,
        "kill" => Contract::Kill,
        _ => return None,
    };
    let ttl = match written.ttl {
        Some(micros) => Some(Ttl::new(Duration::from_micros(micros)).ok()?),
        None => None,
    };
    let ticket = match written.ticket {
        Some(name) => Some(name.parse().ok()?),
        None => None,
    };
    let origin = Origin { host: written.host, boot: written.boot, pid_namespace: written.pid_namespace };
    let resources: Option<Vec<Resource>> = written.resources.into_iter().map(WrittenResource::read).collect();
    Some(Claim {
        owner: written.owner.parse().ok()?,
        resources: resources.filter(|resources| !resources.is_empty())?,
        proof: Proof { origin, voucher },
        contract,
        ttl,
        reason: written.reason,
        ticket,
    })
}

impl WrittenResource {
    fn of(resource: &Resource) -> Self {
        let text = resource.target.as_str().to_owned();
        let mode = resource.mode.to_string();
        match &resource.target {
            Target::Name(_) => Self { name: Some(text), path: None, mode },
            Target::Path(_) => Self { name: None, path: Some(text), mode },
        }
    }

    fn read(self) -> Option<Resource> {
        let target = match (self.name, self.path) {
            (Some(name), None) => Target::Name(name.parse().ok()?),
            (None, Some(path)) => Target::Path(path.parse().ok()?),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        Some(Resource { target, mode: mode_from(&self.mode)? })
    }
}

/// A resource as programs see it: `{"name":"db","mode":"exclusive"}`.
pub fn resource_to_json(resource: &Resource) -> Value {
    let mode = resource.mode.to_string();
    match &resource.target {
        Target::Name(name) => json!({ "name": name.as_str(), "mode": mode }),
        Target::Path(pattern) => json!({ "path": pattern.as_str(), "mode": mode }),
    }
}

fn mode_from(text: &str) -> Option<Mode> {
    match text {
        "exclusive" => Some(Mode::Exclusive),
        "shared" => Some(Mode::Shared),
        counted => counted.strip_prefix("slots:")?.parse::<NonZeroU32>().ok().map(Mode::Slots),
    }
}

/// `[1,2]`.
pub fn lease_ids_to_json(ids: &[LeaseId]) -> String {
    Value::Array(ids.iter().map(|id| id.0.into()).collect()).to_string()
}

/// Reads what [`lease_ids_to_json`] wrote.
pub fn lease_ids_from_json(text: &str) -> Option<Vec<LeaseId>> {
    let numbers: Vec<u64> = serde_json::from_str(text).ok()?;
    Some(numbers.into_iter().map(LeaseId).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(voucher: Voucher, ttl: Option<Duration>) -> Claim {
        let slots = NonZeroU32::new(3).unwrap();
        let origin = Origin { host: "host".to_owned(), boot: "b-1".to_owned(), pid_namespace: u64::MAX };
        Claim {
            owner: "worker:1".parse().unwrap(),
            resources: vec![
                Resource { target: Target::Name("git/index".parse().unwrap()), mode: Mode::Exclusive },
                Resource { target: Target::Path("src/{a,b}/**".parse().unwrap()), mode: Mode::Shared },
                Resource {
                    target: Target::Name("数据库 \"x\"".parse().unwrap()), mode: Mode::Slots(slots)
                },
            ],
            proof: Proof { origin, voucher },
            contract: Contract::Kill,
            ttl: ttl.map(|span| Ttl::new(span).unwrap()),
            reason: ttl.map(|_| "a \\ reason\n".to_owned()),
            ticket: ttl.map(|_| "my turn".parse().unwrap()),
        }
    }

    #[test]
    fn claims_come_back_as_they_went() {
        let process = ProcessRef { pid: 42, started: u64::MAX };
        let vouchers =
            [Voucher::KernelLock { holder: HolderId(7), process }, Voucher::Process(process), Voucher::Time];
        for voucher in vouchers {
            for ttl in [None, Some(Duration::from_micros(1_500_001))] {
                let claim = claim(voucher, ttl);
                assert_eq!(claim_from_json(&claim_to_json(&claim)), Some(claim));
            }
        }
    }

    /// Invariant 12.
    #[test]
    fn what_is_not_a_claim_is_not_guessed_at() {
        let good = claim_to_json(&claim(Voucher::Time, None));
        assert!(claim_from_json(&good).is_some());
        for (from, to) in [
            ("worker:1", "worker"),
            ("\"ttl\"", "\"kernel-lock\""),
            ("kill", "soft"),
            ("exclusive", "slots:0"),
            ("{\"name\":\"git/index\"", "{\"name\":\"git/index\",\"path\":\"x\""),
            ("\"host\"", "\"hosts\""),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from} is not there");
            assert_eq!(claim_from_json(&bad), None, "{bad}");
        }
    }
}
