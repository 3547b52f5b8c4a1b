//! The page of a plan: how the phases of a STAGES file would run now, and why.

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::super::api::stages::{Wanted, plans};
use super::super::extract::Params;
use super::super::failure::Failure;
use super::super::site::Site;
use super::collisions::{Collisions, mode_tone, rule, tone};
use super::words::Words;
use super::{Frame, draw};
use lockkeeper_stages::{PhasePlan, PlanView, span_in_words};

#[derive(Template)]
#[template(path = "plan.html")]
struct Page {
    frame: Frame,
    file: String,
    phases: Vec<Phase>,
}

struct Phase {
    name: String,
    mode: String,
    reason: String,
    /// How long it takes, and how long one by one; none where nothing runs.
    about: Option<(String, String)>,
    collisions: Collisions,
}

pub(super) async fn page(
    State(site): State<Site>,
    Params(wanted): Params<Wanted>,
    frame: Frame,
) -> Result<Response, Failure> {
    let (file, plans) = site.consult(move |site| plans(site, &wanted)).await?;
    let phases = plans.iter().enumerate().map(|(place, plan)| Phase::new(plan, place, frame.words));
    draw(&Page { phases: phases.collect(), file: file.name, frame: frame.at("/stages") })
}

impl Phase {
    fn new(planned: &PhasePlan, place: usize, words: &Words) -> Self {
        let shape = PlanView::of(planned);
        let (length, work) = (planned.plan.length, planned.work());
        Self {
            about: (!shape.waves.is_empty()).then(|| (span_in_words(length), span_in_words(work))),
            collisions: Collisions::new(&shape, format!("phase-{}", place + 1), words, &[]),
            name: shape.phase,
            mode: shape.mode,
            reason: shape.reason,
        }
    }
}
