// Output as a terminal shows it: colours become classes, and a carriage return writes over the line. Text is always inserted as text.

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
/** An escape sequence, or a letter that moves the cursor. */
const CONTROL = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[@-Z\\^_=>78])|[\r\n\b]/g;

/** An escape sequence that is not complete at the end of a text. */
export const OPEN_END = /\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,200}|[()])?$/;

/** The state before the first letter. `line` is what has no line end yet. */
export const plain = () => ({ ...unstyled(), line: new Line() });

const unstyled = () => ({ colour: "", bold: false, dim: false, italic: false, underline: false, inverse: false });

/** A line that is being written. Its parts are texts with their classes. */
class Line {
  parts = [];
  /** Where the next letter goes; null at the end of the line. */
  column = null;
  /** The element that shows it. */
  shown = null;

  copy() {
    const { parts, column, shown } = this;
    return Object.assign(new Line(), { parts: [...parts], column, shown });
  }

  write(text, names) {
    const part = { text, names };
    if (this.column === null) return this.parts.push(part);
    const next = this.column + [...text].length;
    this.parts = [...this.cut(0, this.column), part, ...this.cut(next)];
    this.column = next < this.length() ? next : null;
  }

  back() {
    this.column = Math.max(0, (this.column ?? this.length()) - 1);
  }

  /** Erases a part of the line: from the cursor to the end (0), to the cursor (1), or all of it (2). */
  erase(what) {
    const column = this.column ?? this.length();
    const blank = { text: " ".repeat(column), names: "" };
    this.parts = [...(what === 0 ? this.cut(0, column) : [blank]), ...(what === 1 ? this.cut(column) : [])];
    this.column = column < this.length() ? column : null;
  }

  length() {
    return this.parts.reduce((sum, { text }) => sum + [...text].length, 0);
  }

  /** The letters between two columns. */
  cut(from, to = Infinity) {
    let column = 0;
    const kept = this.parts.map(({ text, names }) => {
      const letters = [...text];
      const part = { text: letters.slice(Math.max(0, from - column), Math.max(0, to - column)).join(""), names };
      column += letters.length;
      return part;
    });
    return kept.filter(({ text }) => text);
  }
}

function apply(style, codes) {
  const parameters = codes.split(";");
  for (let i = 0; i < parameters.length; i++) {
    const [code, ...rest] = parameters[i].split(":").map(Number);
    if (code === 0) Object.assign(style, unstyled());
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = rest[0] !== 0;
    else if (code === 7) style.inverse = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code === 23) style.italic = false;
    else if (code === 24) style.underline = false;
    else if (code === 27) style.inverse = false;
    else if (code === 39) style.colour = "";
    else if (code >= 30 && code <= 37) style.colour = COLOURS[code - 30];
    else if (code >= 90 && code <= 97) style.colour = COLOURS[code - 90];
    else if (code === 38 || code === 48) {
      // `38:2::R:G:B` is one parameter, `38;2;R;G;B` are five.
      const own = rest.length ? rest : parameters.slice(i + 1, i + 5).map(Number);
      const count = own[0] === 5 ? 2 : 4;
      const values = rest.length ? rest.slice(own[0] === 5 ? -1 : -3) : own.slice(1, count);
      // Backgrounds are dropped: text on them would not be readable in both themes.
      if (code === 38) style.colour = own[0] === 5 ? indexed(values[0]) : indexed(nearest(values));
      if (!rest.length) i += count;
    }
  }
}

/** The name of one of 256 colours. */
const indexed = (number) => (number < 16 ? COLOURS[number % 8] : number < 256 ? `c${number}` : "");

const STEPS = [0, 95, 135, 175, 215, 255];

/** Red, green and blue of a colour from 16 to 255: a cube of six steps, then 24 greys. */
function rgb(number) {
  if (number >= 232) return Array(3).fill(8 + 10 * (number - 232));
  const place = number - 16;
  return [Math.floor(place / 36), Math.floor(place / 6) % 6, place % 6].map((step) => STEPS[step]);
}

/** The nearest of the 256 colours. */
function nearest(wanted) {
  const distance = (number) => rgb(number).reduce((sum, one, i) => sum + (one - (wanted[i] || 0)) ** 2, 0);
  let best = 16;
  for (let number = 17; number < 256; number++) if (distance(number) < distance(best)) best = number;
  return best;
}

// The policy of the page allows no inline style, so each colour has a class. Their rules are made here instead of being sent as a file.
const sheet = new CSSStyleSheet();
for (let number = 16; number < 256; number++) sheet.insertRule(`.a-c${number} { --own: rgb(${rgb(number).join(" ")}); }`);
document.adoptedStyleSheets.push(sheet);

function classes(style) {
  const names = ["bold", "dim", "italic", "underline", "inverse"].filter((name) => style[name]).map((name) => `a-${name}`);
  if (style.colour && style.colour !== "white" && style.colour !== "black") {
    if (/\d/.test(style.colour)) names.push("a-own");
    names.push(`a-${style.colour}`);
  }
  return names.join(" ");
}

function put(element, { text, names }, printable) {
  if (!text) return;
  const node = document.createTextNode(printable(text));
  if (!names) return element.append(node);
  const span = document.createElement("span");
  span.className = names;
  span.append(node);
  element.append(span);
}

/**
 * Appends a text to an element. `style` is the state after the text before, and changes. A line that the text before left open is taken
 * over into the element. Says whether the text wrote over a line that began before it.
 */
export function appendAnsi(element, text, style, printable) {
  const done = [];
  let line = (style.line = style.line.copy());
  line.shown?.remove();
  let from = 0;
  let isFirst = true;
  let overwrites = false;
  let names = classes(style);
  const write = (part) => {
    if (!part) return;
    overwrites ||= isFirst && line.column !== null;
    line.write(part, names);
  };
  for (const match of text.matchAll(CONTROL)) {
    write(text.slice(from, match.index));
    from = match.index + match[0].length;
    const [control, codes, letter] = match;
    if (control === "\n") {
      line.parts.forEach((part) => join(done, part));
      join(done, { text: "\n", names: "" });
      line = style.line = new Line();
      isFirst = false;
    } else if (control === "\r") line.column = line.parts.length ? 0 : null;
    else if (control === "\b") line.back();
    else if (letter === "K") line.erase(Number(codes));
    else if (letter === "m" && /^[\d;:]*$/.test(codes)) {
      apply(style, codes);
      names = classes(style);
    }
  }
  write(text.slice(from));
  done.forEach((part) => put(element, part, printable));
  line.shown = document.createElement("span");
  line.parts.forEach((part) => put(line.shown, part, printable));
  element.append(line.shown);
  return overwrites;
}

/** Adds a part to a list. Neighbours of one style become one. */
function join(parts, { text, names }) {
  const last = parts.at(-1);
  if (last?.names === names) last.text += text;
  else parts.push({ text, names });
}
