// Canonical JSON (RFC 8785): keys in the order of their UTF-16 code units, numbers and strings as ECMAScript writes them.

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const keys = Object.keys(value).sort();
    return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

function parseJson(text, what) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Refused(`${what} is not JSON`);
  }
}

/** Return `value` if it is an object with exactly these keys. */
function withKeys(value, keys, what) {
  const found = value !== null && typeof value === "object" && !Array.isArray(value) ? Object.keys(value) : null;
  if (found === null || found.length !== keys.length || !keys.every((key) => Object.hasOwn(value, key))) {
    throw new Refused(`${what} does not have the fields ${keys.join(", ")}`);
  }
  return value;
}

function seconds(time, what) {
  const found = typeof time === "string" && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(time) ? Date.parse(time) / 1000 : NaN;
  if (Number.isNaN(found)) throw new Refused(`${what} is no time in whole seconds of UTC`);
  return found;
}

const inWords = (time) => new Date(1000 * time).toISOString().replace("T", " ").replace(".000Z", "Z");
const day = (time) => inWords(time).slice(0, 10);
