// Bytes, hexadecimal and base64: each in the one form in which it may be written.

const utf8 = new TextEncoder();

/** An error whose message is the reason of a failed check. */
class Refused extends Error {}

const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const isDigest = (value) => typeof value === "string" && /^[0-9a-f]{64}$/.test(value);

function fromBase64(text, what) {
  let bytes;
  try {
    bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    throw new Refused(`${what} is not base64`);
  }
  if (toBase64(bytes) !== text) throw new Refused(`${what} is not canonical base64`);
  return bytes;
}

function toBase64(bytes) {
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters);
}

function toText(bytes, what) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Refused(`${what} is not text in UTF-8`);
  }
}

function joined(...parts) {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

const same = (left, right) => left.length === right.length && left.every((byte, place) => byte === right[place]);
