//! What to do next: from the mode, what was found and `force` to one step, with nothing touched.

use super::status::{Mode, Status};

/// What lies at the lock's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A lock that holds.
    Active,
    /// A lock that may be taken over.
    Zombie,
}

/// What a person is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether to take over a zombie.
    Zombie,
    /// Whether to take the lock of a sprint that runs.
    Active,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Write the lock where there is none.
    Create,
    /// Overwrite the zombie at once, and say so.
    Override,
    /// Overwrite what was found if the answer is yes; it is blocked otherwise.
    Ask(Question),
    /// Remove the lock.
    Remove,
    /// Nothing is left to do.
    Answer(Status),
}

/// Decides on the next step.
pub const fn decide(mode: Mode, found: Found, force: bool) -> Step {
    match (mode, found) {
        (Mode::Acquire, Found::Nothing) => Step::Create,
        (Mode::Acquire, Found::Zombie) if force => Step::Override,
        (Mode::Acquire, Found::Zombie) => Step::Ask(Question::Zombie),
        (Mode::Acquire, Found::Active) if force => Step::Ask(Question::Active),
        (Mode::Acquire, Found::Active) => Step::Answer(Status::Blocked),
        (Mode::Release, Found::Nothing) => Step::Answer(Status::Released),
        (Mode::Release, Found::Active | Found::Zombie) => Step::Remove,
        (Mode::Check, Found::Nothing) => Step::Answer(Status::Clean),
        (Mode::Check, Found::Active) => Step::Answer(Status::Blocked),
        (Mode::Check, Found::Zombie) => Step::Answer(Status::ZombieDetected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements 11, 12, 13, 17, 25, 26, 27, 28, 30, 31.
    #[test]
    fn every_case_of_the_seed_has_its_step() {
        let table = [
            (Mode::Acquire, Found::Nothing, [Step::Create, Step::Create]),
            (Mode::Acquire, Found::Zombie, [Step::Ask(Question::Zombie), Step::Override]),
            (Mode::Acquire, Found::Active, [Step::Answer(Status::Blocked), Step::Ask(Question::Active)]),
            (Mode::Release, Found::Nothing, [Step::Answer(Status::Released); 2]),
            (Mode::Release, Found::Zombie, [Step::Remove; 2]),
            (Mode::Release, Found::Active, [Step::Remove; 2]),
            (Mode::Check, Found::Nothing, [Step::Answer(Status::Clean); 2]),
            (Mode::Check, Found::Zombie, [Step::Answer(Status::ZombieDetected); 2]),
            (Mode::Check, Found::Active, [Step::Answer(Status::Blocked); 2]),
        ];
        for (mode, found, [without, with]) in table {
            assert_eq!(decide(mode, found, false), without, "{mode:?} {found:?}");
            assert_eq!(decide(mode, found, true), with, "{mode:?} {found:?} by force");
        }
    }
}
