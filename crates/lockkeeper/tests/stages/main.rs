//! STAGES.yml: what files say, what is wrong with them, and how their phases would run.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod checking;
mod documents;
mod fuzz;
mod hostile;
mod pictures;
mod planning;
mod reading;
mod real_files;

use lockkeeper_stages::{Conditions, File, PhasePlan, Problem};

const SHOP: &str = include_str!("data/shop.yml");
const BAKERY: &str = include_str!("data/bakery.yml");
const WEATHER: &str = include_str!("data/weather.yml");
const EXAMPLE: &str = include_str!("../../../../examples/STAGES.yml");

fn file(text: &str) -> File {
    File::parse("STAGES.yml", text.as_bytes()).unwrap()
}

/// A file that has to be without fault.
fn sound(text: &str) -> File {
    let file = file(text);
    assert_eq!(file.errors().collect::<Vec<_>>(), Vec::<&Problem>::new());
    file
}

/// A phase of a sound file, on an idle machine.
fn plan(text: &str, phase: &str) -> PhasePlan {
    let idle = Conditions { load: Some(0.0), ..Conditions::default() };
    sound(text).plan(phase, &[], &idle).unwrap()
}

/// Codes with the lines that they are about.
fn codes(file: &File) -> Vec<(&'static str, usize)> {
    file.problems.iter().map(|problem| (problem.code, problem.place.line)).collect()
}

fn ids<'a>(planned: &'a PhasePlan, places: &[usize]) -> Vec<&'a str> {
    places.iter().map(|place| planned.id(*place)).collect()
}

fn waves(planned: &PhasePlan) -> Vec<Vec<&str>> {
    planned.plan.waves.iter().map(|wave| ids(planned, wave)).collect()
}
