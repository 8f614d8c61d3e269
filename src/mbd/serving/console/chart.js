// Charts as SVG, drawn in the width that there is, each beside a table of its numbers.
import { h, table } from "./dom.js";

const HEIGHT = 170, TOP = 10, BOTTOM = 24, LEFT = 34, RIGHT = 6;

function svg(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function drawn(days, width) {
  const top = 2 * Math.max(2, ...days.flatMap((each) => [each.open, each.certified].map((number) => Math.ceil(number / 2))));
  const x = (number) => LEFT + (number + .5) * (width - LEFT - RIGHT) / days.length;
  const y = (value) => HEIGHT - BOTTOM - value * (HEIGHT - TOP - BOTTOM) / top;
  const line = (key, begins) => days.map((each, number) => `${begins(number) ? "M" : "L"}${x(number).toFixed(1)} ${y(each[key]).toFixed(1)}`).join("");
  const open = line("open", (number) => !number);
  const overdue = line("overdue", (number) => !number || !(days[number].overdue || days[number - 1].overdue));
  const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": describe(days) });
  for (const value of [0, top / 2, top]) {
    picture.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), class: "grid" }),
      svg("text", { x: LEFT - 8, y: y(value) + 4, class: "end" }, value));
  }
  const bar = Math.max(2, (width - LEFT - RIGHT) / days.length - 2);
  days.forEach((each, number) => {
    if (!each.certified) return;
    const at = { x: x(number) - bar / 2, y: y(each.certified), width: bar, height: y(0) - y(each.certified), class: "certified" };
    picture.append(svg("rect", at));
  });
  picture.append(svg("path", { d: `${open}L${x(days.length - 1)} ${y(0)}L${x(0)} ${y(0)}Z`, class: "area" }),
    svg("path", { d: open, class: "open" }));
  picture.append(svg("path", { d: overdue, class: "overdue" }));
  [[0, "start"], [Math.floor(days.length / 2), "middle"], [days.length - 1, "end"]].forEach(([number, kind]) => {
    picture.append(svg("text", { x: kind === "end" ? width - RIGHT : x(number), y: HEIGHT - 6, class: kind }, days[number].day));
  });
  return picture;
}

function describe(days) {
  const last = days[days.length - 1];
  const most = Math.max(...days.map((each) => each.open));
  const sum = (key) => days.reduce((total, each) => total + each[key], 0);
  return `In ${days.length} days ${sum("received")} requests were received and ${sum("certified")} certified. ` +
    `At most ${most} were open at once; today ${last.open} are, of which ${last.overdue} overdue.`;
}

/** Return the chart of requests by day. */
export function dayChart(days) {
  const place = h("div", { class: "chart" });
  new ResizeObserver(() => {
    if (place.clientWidth) place.replaceChildren(drawn(days, place.clientWidth));
  }).observe(place);
  const rows = days.filter((each) => each.received || each.certified || each.open).reverse()
    .map((each) => [each.day, each.received, each.certified, each.open, each.overdue]);
  const numbers = table("Requests by day (UTC), the latest first", ["Day", "Received", "Certified", "Open", "Overdue"],
    rows, "No request in these days.");
  return [place, h("details", {}, h("summary", {}, "The numbers"), numbers)];
}

/** Return a bar of the shares of some numbers: pairs of a kind and how many. */
export function shares(parts) {
  const bar = h("div", { class: "shares", "aria-hidden": "true" });
  for (const [kind, number] of parts) {
    const part = h("span", { class: kind });
    part.style.flexGrow = number;
    bar.append(part);
  }
  return bar;
}
