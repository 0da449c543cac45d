/** Server-sent events, read from an answer of `fetch`: unlike EventSource it sends the key in a header. */

const SILENT_SECONDS = 45; // the service gives a sign of life every 15 s

/**
 * @param {Response} answer
 * @param {(name: string, data: any) => void} onEvent
 */
export async function readEvents(answer, onEvent) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser(onEvent);
  for (;;) {
    let bell;
    const silence = new Promise((_, reject) => {
      bell = setTimeout(() => reject(new Error("the stream fell silent")), SILENT_SECONDS * 1000);
    });
    try {
      const { done, value } = await Promise.race([reader.read(), silence]);
      if (done) return;
      parser.take(value);
    } catch (problem) {
      reader.cancel().catch(() => {});
      throw problem;
    } finally {
      clearTimeout(bell);
    }
  }
}

/** Joins parts, which may end anywhere, to lines. */
export class EventParser {
  /** @param {(name: string, data: any) => void} onEvent */
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.rest = "";
    this.name = "message";
    this.data = [];
  }

  /** @param {string} part */
  take(part) {
    const lines = (this.rest + part).split("\n");
    this.rest = lines.pop() ?? "";
    lines.forEach((line) => this.#line(line.replace(/\r$/, "")));
  }

  #line(line) {
    if (line === "") {
      if (this.data.length) this.onEvent(this.name, JSON.parse(this.data.join("\n")));
      this.name = "message";
      this.data = [];
    } else if (line.startsWith("event:")) {
      this.name = line.slice(6).trim();
    } else if (line.startsWith("data:")) {
      this.data.push(line.slice(5).trimStart());
    }
  }
}
