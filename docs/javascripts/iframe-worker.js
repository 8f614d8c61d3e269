// Browsers start no worker from a page that was opened as a file. There, the search runs in a hidden frame instead: it
// has the interface of a worker, and messages go over as events.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      const load = (source) =>
        new Promise((loaded, failed) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: new URL(source, document.baseURI), onload: loaded, onerror: failed });
          inside.document.head.append(script);
        });
      inside.postMessage = (data) => this.announce(this, data);
      inside.importScripts = (...sources) => Promise.all(sources.map(load));
      this.ready = load(url);
    }
    announce(target, data) {
      const event = new MessageEvent("message", { data });
      target.dispatchEvent(event);
      if (target.onmessage) target.onmessage(event);
    }
    async postMessage(data) {
      await this.ready;
      this.announce(this.inside, data);
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
