//! Syntax tree of a shell command line: what the parser gives to the reader.

/// Commands one after another.
pub(super) type List = Vec<Item>;

/// One pipeline of a list, and how it is joined to what comes before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub(super) join: Join,
    /// More than one command: a pipe joins them.
    pub(super) pipeline: Vec<Command>,
    /// It begins with `!`.
    pub(super) negated: bool,
    /// It ends with `&`.
    pub(super) background: bool,
}

impl Item {
    /// One command alone.
    pub(super) fn of(command: Command) -> Self {
        Self { join: Join::Next, pipeline: vec![command], negated: false, background: false }
    }
}

/// How a pipeline is joined to the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// `;`, a new line, or the beginning.
    Next,
    /// `&&`.
    And,
    /// `||`.
    Or,
}

/// A command with its redirections.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Command {
    pub(super) kind: Kind,
    pub(super) redirects: Vec<Redirect>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Assignments, then the words of a program call.
    Simple { assignments: Vec<Assignment>, words: Vec<Word> },
    /// `( … )`.
    Subshell(List),
    /// `{ …; }`.
    Group(List),
    /// `if`, `elif`: conditions, each with what runs if it succeeds; then the list of `else`, which may be empty.
    If { branches: Vec<(List, List)>, otherwise: List },
    /// `while`, `until`, `for ((…))`.
    Loop { condition: List, body: List, until: bool },
    /// `case`: the words are only evaluated. `has_default`: one of the lists always runs.
    Case { words: Vec<Word>, lists: Vec<List>, has_default: bool },
    /// `for NAME in WORDS`, `select`. Without words: over the arguments.
    For { name: String, words: Option<Vec<Word>>, body: List },
    /// `NAME() { … }`.
    Function { name: String, body: Box<Command> },
    /// `[[ … ]]`, `(( … ))`: nothing but words that are evaluated.
    Test(Vec<Word>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assignment {
    pub(super) name: String,
    /// `None`: an array, or one element of it.
    pub(super) value: Option<Word>,
    /// `+=`.
    pub(super) append: bool,
    /// The words of an array, or of one element; substitutions in them run.
    pub(super) elements: Vec<Word>,
    /// `NAME=( … )`.
    pub(super) is_array: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Redirect {
    /// `> >> >| &> &>> <>` to a file.
    Write(Word),
    /// `>&` to a word: a descriptor if it is a number, else a file.
    Copy(Word),
    /// `<` from a file.
    Read(Word),
    /// `<<<` from a word.
    HereString(Word),
    /// `<<`, `<<-`: the number of the body in [`Script::bodies`].
    HereDocument(usize),
}

impl Redirect {
    /// The word behind the operator.
    pub(super) fn word(&self) -> Option<&Word> {
        match self {
            Self::Write(word) | Self::Copy(word) | Self::Read(word) | Self::HereString(word) => Some(word),
            Self::HereDocument(_) => None,
        }
    }
}

/// A parsed command line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Script {
    pub(super) list: List,
    /// The here-documents, in the order in which they are named.
    pub(super) bodies: Vec<Word>,
}

/// A word: pieces without blanks between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Word(pub(super) Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// Unquoted text: braces, `~` and wildcards are expanded.
    Plain(String),
    /// Quoted text: nothing is expanded.
    Quoted(String),
    /// `$NAME`, `${NAME}`, `${NAME[0]}`, `${NAME[@]}`.
    Variable { name: String, quoted: bool },
    /// `${NAME:-word}`, `${NAME%word}` and the like.
    Parameter { name: String, quoted: bool, form: Form, word: Word },
    /// `$( … )` and backquotes.
    Substitution { list: List, quoted: bool },
    /// `<( … )`, `>( … )`.
    Process(List),
    /// An expansion whose value the reader does not work out. Substitutions within it still run, and it may change variables:
    /// `$((i++))`, `${X:=a}`.
    Opaque { lists: Vec<List>, changes: Vec<String> },
}

/// How an expansion changes the value of a variable by its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `-`, `=`: the word, if the variable is not set. With a colon, also if it is empty.
    Default { if_empty: bool, assigns: bool },
    /// `+`: the word, if the variable is set; with a colon, if it is not empty.
    Instead { if_empty: bool },
    /// `#`, `##`: without what the pattern matches at the beginning.
    WithoutBeginning { longest: bool },
    /// `%`, `%%`: without what the pattern matches at the end.
    WithoutEnd { longest: bool },
}

impl Piece {
    /// Whether commands within it run, or it changes variables.
    pub(super) fn runs(&self) -> bool {
        match self {
            Self::Substitution { .. } | Self::Process(_) | Self::Opaque { .. } => true,
            Self::Parameter { word, form, .. } => {
                matches!(form, Form::Default { assigns: true, .. }) || word.0.iter().any(Self::runs)
            }
            Self::Plain(_) | Self::Quoted(_) | Self::Variable { .. } => false,
        }
    }
}

impl Word {
    /// The text, if the word is one piece of unquoted text. Reserved words are such.
    pub(super) fn plain(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Plain(text)] => Some(text),
            _ => None,
        }
    }

    /// The pieces without the empty text that quotes leave.
    pub(super) fn without_empty(&self) -> Vec<&Piece> {
        self.0.iter().filter(|piece| !matches!(piece, Piece::Quoted(text) if text.is_empty())).collect()
    }

    /// The name before the `=` of a word such as `A=$B`.
    pub(super) fn assigned_name(&self) -> Option<&str> {
        let Some(Piece::Plain(text)) = self.0.first() else { return None };
        let (name, _) = text.split_once('=')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        (is_name && !name.is_empty()).then_some(name)
    }

    /// The text, if no piece has to be expanded. Wildcards and braces are taken as they are.
    pub(super) fn literal(&self) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Plain(part) | Piece::Quoted(part) => text.push_str(part),
                _ => return None,
            }
        }
        Some(text)
    }
}
