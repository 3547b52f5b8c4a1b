//! What the fake model does in one conversation, as JSON within the prompt.

use serde_json::{Value, json};

use super::conversation::Reply;

/// The text before the JSON.
const MARK: &str = "SCRIPT OF THE FAKE MODEL: ";

/// Steps of the model: calls of tools, gates, and a last text. After the last step it says `done`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    steps: Vec<Step>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub(super) tool: String,
    pub(super) input: Value,
}

impl Call {
    /// A call of this tool. Input that is a string goes to a tool with free-form input.
    #[must_use]
    pub fn new(tool: &str, input: Value) -> Self {
        Self { tool: tool.to_owned(), input }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Calls of tools in one answer.
    Calls(Vec<Call>),
    /// The model does not answer until the test opens this gate.
    Gate(String),
    /// A text that ends the turn.
    Say(String),
}

impl Script {
    /// A script without steps.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls a tool.
    #[must_use]
    pub fn call(self, call: Call) -> Self {
        self.together([call])
    }

    /// Calls tools one after the other, each in an answer of its own.
    #[must_use]
    pub fn then(self, calls: impl IntoIterator<Item = Call>) -> Self {
        calls.into_iter().fold(self, Self::call)
    }

    /// Calls several tools in one answer.
    #[must_use]
    pub fn together(mut self, calls: impl IntoIterator<Item = Call>) -> Self {
        self.steps.push(Step::Calls(calls.into_iter().collect()));
        self
    }

    /// Waits until the test opens a gate: see [`super::FakeModel::until_at`].
    #[must_use]
    pub fn gate(mut self, name: &str) -> Self {
        self.steps.push(Step::Gate(name.to_owned()));
        self
    }

    /// Says a text, and so ends the turn.
    #[must_use]
    pub fn say(mut self, text: &str) -> Self {
        self.steps.push(Step::Say(text.to_owned()));
        self
    }

    /// The prompt that carries this script.
    #[must_use]
    pub fn prompt(&self) -> String {
        let steps: Vec<Value> = self.steps.iter().map(Step::json).collect();
        format!("{MARK}{}", Value::from(steps))
    }

    /// The script in a prompt. Text may stand before and after it.
    pub(super) fn find(prompt: &str) -> Option<Self> {
        let (_, rest) = prompt.split_once(MARK)?;
        let steps: Vec<Value> = serde_json::Deserializer::from_str(rest).into_iter().next()?.ok()?;
        Some(Self { steps: steps.iter().map(Step::read).collect::<Option<_>>()? })
    }

    /// What follows after this many calls: the gates to wait at, and then the answer.
    pub(super) fn next(&self, calls: usize) -> (Vec<String>, Reply) {
        let (mut made, mut gates) = (0, Vec::new());
        for step in &self.steps {
            match step {
                Step::Calls(wanted) if made < calls => made += wanted.len(),
                Step::Calls(wanted) => return (gates, Reply::Calls(wanted.clone())),
                Step::Gate(name) if made >= calls => gates.push(name.clone()),
                Step::Say(text) if made >= calls => return (gates, Reply::Say(text.clone())),
                Step::Gate(_) | Step::Say(_) => {}
            }
        }
        (gates, Reply::Say("done".to_owned()))
    }
}

impl Step {
    fn json(&self) -> Value {
        match self {
            Self::Calls(calls) => {
                let calls: Vec<Value> =
                    calls.iter().map(|call| json!({ "tool": call.tool, "input": call.input })).collect();
                json!({ "calls": calls })
            }
            Self::Gate(name) => json!({ "gate": name }),
            Self::Say(text) => json!({ "say": text }),
        }
    }

    fn read(json: &Value) -> Option<Self> {
        if let Some(calls) = json["calls"].as_array() {
            let call = |call: &Value| {
                Some(Call { tool: call["tool"].as_str()?.to_owned(), input: call["input"].clone() })
            };
            return calls.iter().map(call).collect::<Option<_>>().map(Self::Calls);
        }
        let gate = json["gate"].as_str().map(|name| Self::Gate(name.to_owned()));
        gate.or_else(|| json["say"].as_str().map(|text| Self::Say(text.to_owned())))
    }
}
