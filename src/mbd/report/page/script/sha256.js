// SHA-256: by WebCrypto, which wants all bytes at once; files too large for that are hashed piece by piece here.

const AT_ONCE = 256 * 2 ** 20;
const PIECE = 4 * 2 ** 20;

const [ROUND_CONSTANTS, FIRST_STATE] = (() => {
  const primes = [];
  for (let number = 2; primes.length < 64; number++) {
    if (primes.every((prime) => number % prime)) primes.push(number);
  }
  const fraction = (root) => Math.floor((root - Math.floor(root)) * 2 ** 32) | 0;
  return [primes.map((prime) => fraction(Math.cbrt(prime))), primes.slice(0, 8).map((p) => fraction(Math.sqrt(p)))];
})();

class Sha256 {
  #state = Int32Array.from(FIRST_STATE);
  #words = new Int32Array(64);
  #rest = new Uint8Array(0);
  #size = 0;

  update(bytes) {
    this.#size += bytes.length;
    const all = this.#rest.length ? joined(this.#rest, bytes) : bytes;
    const whole = all.length - (all.length % 64);
    const view = new DataView(all.buffer, all.byteOffset, whole);
    for (let at = 0; at < whole; at += 64) this.#block(view, at);
    this.#rest = all.slice(whole);
  }

  digest() {
    const padding = new Uint8Array(((119 - (this.#size % 64)) % 64) + 9);
    padding[0] = 0x80;
    new DataView(padding.buffer).setBigUint64(padding.length - 8, 8n * BigInt(this.#size));
    this.update(padding);
    const digest = new DataView(new ArrayBuffer(32));
    this.#state.forEach((word, place) => digest.setInt32(4 * place, word));
    return new Uint8Array(digest.buffer);
  }

  #block(view, at) {
    const w = this.#words;
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15];
      const y = w[i - 2];
      const small = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const large = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = (w[i - 16] + small + w[i - 7] + large) | 0;
    }
    let [a, b, c, d, e, f, g, h] = this.#state;
    for (let i = 0; i < 64; i++) {
      const up = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const one = (h + up + ((e & f) ^ (~e & g)) + ROUND_CONSTANTS[i] + w[i]) | 0;
      const down = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const two = (down + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, place) => (this.#state[place] += word));
  }
}

async function sha256(bytes) {
  if (globalThis.crypto?.subtle) return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const hash = new Sha256();
  hash.update(bytes);
  return hash.digest();
}

/** Return the SHA-256 of a file in hexadecimal; `progress` is called with the share that is done. */
async function sha256File(file, progress = () => {}, atOnce = AT_ONCE) {
  if (file.size <= atOnce) return toHex(await sha256(new Uint8Array(await file.arrayBuffer())));
  const hash = new Sha256();
  for (let at = 0; at < file.size; at += PIECE) {
    hash.update(new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer()));
    progress(Math.min(1, (at + PIECE) / file.size));
  }
  return toHex(hash.digest());
}
