// Log viewer: a window over the output of a run. The output may be very long; the page keeps about ten thousand lines of it.
// Output is always inserted as text, never as markup.

import { OPEN_END, appendAnsi, plain } from "/assets/ansi.mjs";
import { printable } from "/assets/page.mjs";

const CHUNK = 64 * 1024;
// How many lines are kept, and how many characters where lines are long. Chunks at the other end are removed first.
const MAX_LINES = 10000;
const MAX_CHARACTERS = 2 * 1024 * 1024;
// When following is farther behind than this, it skips to the last lines.
const MAX_LAG = 16 * CHUNK;
// How close to an edge, in pixels, more output is loaded.
const EDGE = 600;
// The pause between two requests while following, in milliseconds.
const PAUSE = 150;

const byId = (id) => document.getElementById(id);
const box = byId("log");
const place = byId("log-place");
const buttons = { begin: byId("log-begin"), end: byId("log-end") };
const find = byId("log-find");
const { log: address, attempt } = box.dataset;

/**
 * The chunks that are shown, in order: first byte, byte after the last, lines, characters, whether it wrote over the line before it, the
 * style after it, the element.
 */
const chunks = [];
let size = Number(box.dataset.size);
let ended = box.dataset.ended === "true";
let cut = null;
// The machine that has the whole output, if it is another one.
let host = null;
let follows = true;
// Where the view was last, to tell a person who scrolls up from a layout that changed.
let top = 0;
let heights = "";
// Whether the box has changed its size since the last input of a person.
let isResized = false;
// The number of jumps so far. A response to a request from before the last jump is discarded.
let epoch = 0;
// The number of follow loops started so far. Only the last one continues.
let follower = 0;
let loading = false;
let waiting = null;

const first = () => chunks[0]?.from ?? 0;
const last = () => chunks.at(-1)?.to ?? 0;
const currentHeights = () => `${box.clientHeight} of ${box.scrollHeight}`;
const atEnd = () => box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
const query = (values) => new URLSearchParams(attempt ? { ...values, attempt } : values);

async function read(values, signal) {
  const answer = await fetch(`${address}/log?${query(values)}`, { signal });
  if (!answer.ok) throw new Error(`${answer.status}`);
  const part = await answer.json();
  ({ size, ended } = part);
  cut = part.cut_to === null ? null : { from: part.cut_from, to: part.cut_to };
  host = part.host;
  // An escape sequence is not taken apart: the rest of it comes with the next chunk.
  const open = part.to < part.size || !part.ended ? part.text.match(OPEN_END)?.[0] : "";
  if (open && open.length < part.text.length) {
    part.text = part.text.slice(0, -open.length);
    part.to -= open.length;
  }
  return part;
}

function piece({ from, to, text }, style) {
  const node = document.createElement("span");
  if (cut && from === cut.to) {
    const mark = document.createElement("span");
    mark.className = "cut";
    mark.textContent = box.dataset.cut.replace("{n}", (cut.to - cut.from).toLocaleString(document.documentElement.lang)) + (host ? ` (${host})` : "");
    node.append(mark);
  }
  const overwrites = appendAnsi(node, text, style, printable);
  return { from, to, lines: text.split("\n").length - 1, characters: text.length, overwrites, style, node };
}

/** Whether more is kept than needed, also without the chunk at one end. */
function isFull(end) {
  const sum = (key) => chunks.reduce((all, one) => all + one[key], 0);
  return chunks.length > 1 && (sum("lines") - end.lines >= MAX_LINES || sum("characters") - end.characters >= MAX_CHARACTERS);
}

function scrollTo(value) {
  box.scrollTop = value;
  top = box.scrollTop;
  heights = currentHeights();
}

function append(part) {
  if (!part.text) return;
  const one = piece(part, { ...(chunks.at(-1)?.style ?? plain()) });
  box.append(one.node);
  chunks.push(one);
  while (isFull(chunks[0])) {
    const before = box.scrollHeight;
    chunks.shift().node.remove();
    if (!follows) scrollTo(box.scrollTop - (before - box.scrollHeight));
  }
  if (follows) scrollTo(box.scrollHeight);
}

function prepend(part) {
  if (!part.text) return;
  const one = piece(part, plain());
  // The line at its end was written over by what follows.
  if (chunks[0]?.overwrites) one.style.line.shown.remove();
  const before = box.scrollHeight;
  box.prepend(one.node);
  scrollTo(box.scrollTop + box.scrollHeight - before);
  chunks.unshift(one);
  while (isFull(chunks.at(-1))) chunks.pop().node.remove();
}

function show() {
  place.textContent = `${first()}–${last()} / ${size} B`;
  buttons.begin.disabled = first() === 0;
  buttons.end.disabled = follows && last() >= size;
  buttons.end.setAttribute("aria-pressed", `${follows && !ended}`);
}

function clear() {
  chunks.length = 0;
  box.replaceChildren();
}

/** Jumps to another position of the output. */
async function jump(from) {
  const now = ++epoch;
  follows = false;
  waiting?.abort();
  const part = await read({ from, limit: CHUNK });
  if (now !== epoch) return;
  clear();
  append(part);
  scrollTo(0);
  show();
  await edges();
}

/** Shows the last lines, and follows. */
async function jumpToEnd() {
  const now = ++epoch;
  waiting?.abort();
  const begin = await read({ lines: MAX_LINES, limit: 1 });
  if (now !== epoch) return;
  const parts = [];
  let from = Math.max(begin.from, begin.size - MAX_CHARACTERS);
  for (;;) {
    const part = await read({ from, limit: 4 * CHUNK });
    if (now !== epoch) return;
    parts.push(part);
    if (!part.text || part.to >= part.size) break;
    from = part.to;
  }
  clear();
  follows = true;
  parts.forEach(append);
  scrollTo(box.scrollHeight);
  show();
  follow();
}

/** Loads more output when the view is close to an edge. */
async function edges() {
  if (loading) return;
  loading = true;
  const now = epoch;
  try {
    while (now === epoch && !follows && box.scrollTop < EDGE && first() > 0) {
      // What was cut out is passed over: before it is the beginning of the output.
      const to = cut && first() === cut.to ? cut.from : first();
      if (to === 0) break;
      const from = Math.max(0, to - CHUNK);
      const part = await read({ from, limit: to - from });
      if (now !== epoch || part.from >= to || !part.text) break;
      prepend(part);
    }
    while (now === epoch && !follows && box.scrollTop + box.clientHeight > box.scrollHeight - EDGE && last() < size) {
      const part = await read({ from: last(), limit: CHUNK });
      if (now !== epoch || !part.text) break;
      append(part);
    }
  } catch {
    // The event stream shows that the server is gone. The next scroll event tries again.
  }
  loading = false;
  if (now !== epoch) return;
  // A reader who has scrolled to the end follows again.
  if (!follows && atEnd() && last() >= size) {
    follows = true;
    follow();
  }
  show();
}

/** Shows new output as it is written, until a person scrolls up. */
async function follow() {
  const mine = ++follower;
  const isCurrent = () => mine === follower && follows && !document.hidden;
  while (isCurrent() && !(ended && last() >= size)) {
    waiting = new AbortController();
    let part;
    try {
      part = await read({ from: last(), limit: CHUNK, wait: 20 }, waiting.signal);
      if (!isCurrent()) return;
      // Another attempt started from the beginning, or the command writes faster than we show.
      if (part.size < last() || part.size - part.to > MAX_LAG) return await jumpToEnd();
    } catch {
      if (isCurrent()) await new Promise((resolve) => setTimeout(resolve, 2000));
      continue;
    }
    append(part);
    show();
    if (ended && !part.text) return;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

// Search --------------------------------------------------------------------------------------------------------------

// The match that is shown: its first byte.
let found = -1;

async function search(back) {
  const text = byId("log-text").value;
  if (!text) return;
  let from = found < 0 ? (back ? size : 0) : back ? found : found + 1;
  for (;;) {
    const answer = await fetch(`${address}/search?${query({ text, from, back })}`);
    if (!answer.ok) return;
    const { at, next } = await answer.json();
    if (at !== null) return reveal(at, text);
    if (next === null) break;
    from = next;
  }
  place.textContent = box.dataset.none;
}

/** Shows a match in the middle of the view, and marks it. */
async function reveal(at, text) {
  found = at;
  const from = Math.max(0, at - CHUNK / 2);
  // A window never reaches across what was cut out.
  await jump(cut && from < cut.to && at >= cut.to ? cut.to : from);
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  const encoder = new TextEncoder();
  // The match is the last one that begins at this place: count the bytes before it as the output has them.
  const part = chunks.find((one) => one.from <= at && at < one.to);
  const wanted = text.toLowerCase();
  let best = null;
  let bytes = part?.from ?? 0;
  walker.currentNode = part?.node ?? box;
  for (let node = walker.nextNode(); node && part?.node.contains(node); node = walker.nextNode()) {
    if (node.parentElement.className === "cut") continue;
    const lower = node.data.toLowerCase();
    for (let place = lower.indexOf(wanted); place >= 0; place = lower.indexOf(wanted, place + 1)) {
      const distance = Math.abs(bytes + encoder.encode(node.data.slice(0, place)).length - at);
      if (!best || distance < best.distance) best = { node, place, distance };
    }
    bytes += encoder.encode(node.data).length;
  }
  if (!best) return;
  const range = new Range();
  range.setStart(best.node, best.place);
  range.setEnd(best.node, best.place + text.length);
  CSS.highlights?.set("found", new Highlight(range));
  const offset = range.getBoundingClientRect().top - box.getBoundingClientRect().top;
  scrollTo(Math.max(0, box.scrollTop + offset - box.clientHeight / 2));
  show();
}

find.addEventListener("submit", (event) => {
  event.preventDefault();
  search(false);
});
byId("log-previous").addEventListener("click", () => search(true));
byId("log-text").addEventListener("input", () => (found = -1));

// -----------------------------------------------------------------------------------------------------------------------

box.addEventListener("scroll", () => {
  // Only a person scrolls up. After a change of size the browser moves the view as well, also some frames later, and so does text
  // that wraps differently: that is no wish.
  if (follows && (isResized || currentHeights() !== heights)) scrollTo(box.scrollHeight);
  if (box.scrollTop < top - 2) {
    follows = false;
    waiting?.abort();
  }
  top = box.scrollTop;
  show();
  edges();
});
box.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Home") jump(0);
  else if (event.key === "End") jumpToEnd();
  else return;
  event.preventDefault();
});
buttons.begin.addEventListener("click", () => jump(0));
buttons.end.addEventListener("click", jumpToEnd);
document.addEventListener("visibilitychange", () => (document.hidden ? waiting?.abort() : follows && follow()));

for (const input of ["wheel", "pointerdown", "touchstart", "keydown"]) {
  document.addEventListener(input, () => (isResized = false), { capture: true, passive: true });
}
new ResizeObserver(() => {
  isResized = true;
  if (follows) scrollTo(box.scrollHeight);
}).observe(box);
for (const one of [...Object.values(buttons), find]) one.hidden = false;
jumpToEnd().catch(() => show());
