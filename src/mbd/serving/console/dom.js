// Elements, words and times. Every text is set as text, never as HTML.

export function h(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Return the content of a template, with its slots filled. */
export function page(name, slots = {}) {
  const made = document.getElementById(`page-${name}`).content.cloneNode(true);
  for (const [slot, content] of Object.entries(slots)) {
    made.querySelector(`[data-slot="${slot}"]`).replaceChildren(...[content].flat().filter((part) => part !== null));
  }
  return made;
}

export const link = (href, ...content) => h("a", { href }, ...content);
export const short = (digest) => h("code", { title: digest }, digest.slice(0, 12));
export const list = (names) => names.join(", ");
export const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
export const day = (at) => h("time", { datetime: at, class: "whole" }, at.slice(0, 10));

export function time(at) {
  return h("time", { datetime: at }, `${at.slice(0, 10)} ${at.slice(11, 16)} UTC`);
}

/** Return how far away a time is, in words. */
export function distance(at) {
  const days = (new Date(at) - Date.now()) / 86400000;
  const whole = Math.floor(Math.abs(days));
  const words = whole ? count(whole, "day") : "less than a day";
  return days < 0 ? `${words} late` : `${words} left`;
}

const STATES = {
  received: ["wait", "○", "Received"],
  running: ["wait", "◐", "In progress"],
  certified: ["good", "✓", "Certified"],
  refused: ["bad", "✕", "Refused"],
  failed: ["bad", "!", "Failed"],
  cancelled: ["quiet", "–", "Cancelled"],
};

function chip(kind, mark, words) {
  return h("span", { class: `chip ${kind}` }, h("span", { "aria-hidden": "true" }, mark), words);
}

export const stateChip = (state) => chip(...(STATES[state] || ["quiet", "?", state]));

const MARKS = { good: "✓", note: "↻", warning: "?", critical: "✕" };
const KINDS = { good: "good", note: "note", warning: "wait", critical: "bad" };
export const verdictKind = (verdicts, verdict) => KINDS[verdicts[verdict].severity];
export const verdictChip = (verdicts, verdict) =>
  chip(verdictKind(verdicts, verdict), MARKS[verdicts[verdict].severity], verdict.toUpperCase());

export const tag = (text, kind = "") => h("span", { class: `tag ${kind}` }, text);
export const tags = (names, kind, none) => (names.length ? names.flatMap((name) => [tag(name, kind), " "]) : [h("span", { class: "quiet" }, none)]);

/** Return rows of a list of facts; a fact without content is left out. */
export function facts(rows) {
  return rows.filter(([, content]) => content !== null && content !== undefined && content !== "")
    .map(([name, content]) => h("div", {}, h("dt", {}, name), h("dd", {}, ...[content].flat())));
}

/** Return a table that becomes a list of cards on a narrow screen. */
export function table(caption, columns, rows, nothing) {
  if (!rows.length) return h("p", { class: "quiet" }, nothing);
  const head = h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)));
  const body = rows.map((cells) => h("tr", {}, cells.map((cell, number) =>
    h(number ? "td" : "th", number ? { "data-label": columns[number] } : { scope: "row" }, h("span", {}, ...[cell].flat())))));
  return h("div", { class: "table", role: "region", tabindex: "0", "aria-label": caption },
    h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, body)));
}

/** Return an entry of a timeline; without a time it has not happened yet. */
export function entry({ at, title, kind = "", note = "", links = [] }) {
  return h("li", { class: at ? kind : "pending" },
    h("p", { class: "when" }, at ? time(at) : "not yet"),
    h("h3", {}, ...[title].flat()),
    note ? h("p", { class: "note" }, ...[note].flat()) : null,
    links.length ? h("p", { class: "links" }, ...links) : null);
}
