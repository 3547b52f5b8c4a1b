//! Groups that can run together, one set after the other.

use super::dispatch::{Course, Schedule};

/// Puts each group into the first wave after all that it waits for, and after those that it excludes and that begin
/// before it. A wave has no more groups than there are slots. `file_order` respects the dependencies.
pub(super) fn waves(course: &Course, schedule: &Schedule, file_order: &[usize]) -> Vec<Vec<usize>> {
    let mut order = file_order.to_vec();
    // The sort is stable: of those that begin at one same time, whoever waits for a beginning comes later.
    order.sort_by_key(|group| schedule.begins[*group]);
    let mut earliest = vec![0_usize; course.count()];
    let mut waves: Vec<Vec<usize>> = Vec::new();
    for group in order {
        let mut wave = earliest[group];
        while waves.get(wave).is_some_and(|members| members.len() >= course.slots) {
            wave += 1;
        }
        if waves.len() <= wave {
            waves.resize(wave + 1, Vec::new());
        }
        waves[wave].push(group);
        for other in course.excludes[group].iter().chain(&course.after_end[group]) {
            earliest[*other] = earliest[*other].max(wave + 1);
        }
        for follower in &course.after_begin[group] {
            earliest[*follower] = earliest[*follower].max(wave);
        }
    }
    waves.iter_mut().for_each(|members| members.sort_unstable());
    waves.retain(|members| !members.is_empty());
    waves
}
