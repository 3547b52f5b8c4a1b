// Colours of terminals: turns the escape sequences of an output into elements with classes. Text is always inserted as text.

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const SEQUENCE = /\x1b(?:\[([0-9;:]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[@-Z\\^_=>78])/g;

/** An escape sequence that is not complete at the end of a text. */
export const OPEN_END = /\x1b(?:\[[0-9;:]*|\][^\x07\x1b]{0,200}|[()])?$/;

/** The style before the first sequence. */
export const plain = () => ({ colour: "", bold: false, dim: false, italic: false, underline: false });

function apply(style, codes) {
  const numbers = codes.split(/[;:]/).map(Number);
  for (let i = 0; i < numbers.length; i++) {
    const code = numbers[i];
    if (code === 0) Object.assign(style, plain());
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code === 23) style.italic = false;
    else if (code === 24) style.underline = false;
    else if (code === 39) style.colour = "";
    else if (code >= 30 && code <= 37) style.colour = COLOURS[code - 30];
    else if (code >= 90 && code <= 97) style.colour = COLOURS[code - 90];
    else if (code === 38 || code === 48) {
      // Of 256 colours the first sixteen have names. Others, and backgrounds, are dropped: they would not be readable in both themes.
      const indexed = numbers[i + 1] === 5;
      if (code === 38) style.colour = indexed && numbers[i + 2] < 16 ? COLOURS[numbers[i + 2] % 8] : "";
      i += indexed ? 2 : 4;
    }
  }
}

function classes(style) {
  const names = ["bold", "dim", "italic", "underline"].filter((name) => style[name]).map((name) => `a-${name}`);
  if (style.colour && style.colour !== "white" && style.colour !== "black") names.push(`a-${style.colour}`);
  return names.join(" ");
}

/** Appends a text to an element. `style` is that of the text before, and changes. */
export function appendAnsi(element, text, style, printable) {
  let from = 0;
  const put = (part) => {
    if (!part) return;
    // A line that a command wrote over is not kept in a log; its last state is shown.
    const node = document.createTextNode(printable(part.replace(/\r\n/g, "\n")));
    const names = classes(style);
    if (!names) return element.append(node);
    const span = document.createElement("span");
    span.className = names;
    span.append(node);
    element.append(span);
  };
  for (const match of text.matchAll(SEQUENCE)) {
    put(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === "m") apply(style, match[1] || "0");
  }
  put(text.slice(from));
}
