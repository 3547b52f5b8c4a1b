//! The macro that makes tests of a list of cases.

/// Makes one test of each case, for one backend. A case is a function of a module of the crate.
macro_rules! tests_of_cases {
    ($harness:expr; $($module:ident: $($case:ident),+;)+) => {
        $(mod $module {
            $(#[test]
            fn $case() {
                let harness = $harness;
                match crate::support::harness::Harness::lacks(&harness) {
                    None => crate::$module::$case(&harness),
                    Some(what) => crate::support::harness::skip(what),
                }
            })+
        })+
    };
}
