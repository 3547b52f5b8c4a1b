//! Plans of all phases of a file: a phase that cannot be planned does not keep the others from theirs.

use lockkeeper_stages::{File, PhasePlan};

use crate::report::Report;

/// A phase without a plan.
#[derive(Debug)]
pub struct RefusedPhase {
    /// The name of the phase.
    pub phase: String,
    /// Why it has no plan.
    pub report: Report,
}

/// Plans one phase, or all phases of a file if none is named. Fails if the named phase has no
/// plan, or if no phase of the file has one.
pub fn plan_phases(
    file: &File,
    named: Option<&str>,
    plan: impl Fn(&str) -> Result<PhasePlan, Report>,
) -> Result<(Vec<PhasePlan>, Vec<RefusedPhase>), Report> {
    if let Some(phase) = named {
        return Ok((vec![plan(phase)?], Vec::new()));
    }
    let (mut plans, mut refused) = (Vec::new(), Vec::new());
    for phase in &file.stages.phases {
        let phase = &phase.name.value;
        match plan(phase) {
            Ok(plan) => plans.push(plan),
            Err(report) => refused.push(RefusedPhase { phase: phase.clone(), report }),
        }
    }
    match refused.pop() {
        Some(last) if plans.is_empty() => Err(last.report),
        last => {
            refused.extend(last);
            Ok((plans, refused))
        }
    }
}
