//! Waves: sets of groups that can run together, one set after the other.

use super::dispatch::{Schedule, SchedulingProblem};

/// Puts each group into the first wave after all groups that it waits for, and after the groups that it excludes and that
/// start before it. A wave has no more groups than there are slots. `file_order` respects the dependencies.
pub(super) fn waves(
    problem: &SchedulingProblem,
    schedule: &Schedule,
    file_order: &[usize],
) -> Vec<Vec<usize>> {
    let mut order = file_order.to_vec();
    // The sort is stable: of groups with the same start, the one that waits for the other's start comes later.
    order.sort_by_key(|group| schedule.begins[*group]);
    let mut earliest = vec![0_usize; problem.count()];
    let mut waves: Vec<Vec<usize>> = Vec::new();
    for group in order {
        let mut wave = earliest[group];
        while waves.get(wave).is_some_and(|members| members.len() >= problem.slots) {
            wave += 1;
        }
        if waves.len() <= wave {
            waves.resize(wave + 1, Vec::new());
        }
        waves[wave].push(group);
        for other in problem.excludes[group].iter().chain(&problem.after_end[group]) {
            earliest[*other] = earliest[*other].max(wave + 1);
        }
        for follower in &problem.after_begin[group] {
            earliest[*follower] = earliest[*follower].max(wave);
        }
    }
    waves.iter_mut().for_each(|members| members.sort_unstable());
    waves.retain(|members| !members.is_empty());
    waves
}
