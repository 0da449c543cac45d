/** A sortable table that draws the first of thousands of rows, and updates cell by cell. */

import { el, put } from "./dom.js";

const CHUNK = 60;

/**
 * @template Row
 * @typedef {{
 *   name: string, label: string, title?: string, numeric?: boolean, downFirst?: boolean,
 *   value: (row: Row) => any, text?: (row: Row) => string, cell?: (row: Row) => Node | string
 * }} Column  `value` sorts and goes into CSV, `text` decides whether a cell changed, `cell` draws it
 */

/** @template Row */
export class DataTable {
  /**
   * @param {{name: string, columns: Column<Row>[], id: (row: Row) => string, sort?: {name: string, down: boolean},
   *   onSort?: (sort: {name: string, down: boolean}) => void, tie?: (a: Row, b: Row) => number,
   *   onPoint?: (row: Row | null) => void}} about
   */
  constructor(about) {
    this.about = about;
    this.sort = about.sort ?? { name: about.columns[0].name, down: false };
    /** @type {Row[]} */ this.rows = [];
    this.shown = CHUNK;
    /** @type {Map<string, {tr: HTMLTableRowElement, texts: string[]}>} */ this.drawn = new Map();
    this.headings = about.columns.map((column) => this.#heading(column));
    this.body = el("tbody");
    this.more = el("button", { type: "button", class: "more", hidden: true, on: { click: () => this.#showMore() } });
    this.table = el(
      "table",
      { class: "data" },
      el("caption", { class: "visually-hidden" }, about.name),
      el("thead", {}, el("tr", {}, ...this.headings)),
      this.body,
    );
    this.element = el(
      "div",
      { class: "scroll rows", tabindex: "0", role: "region", "aria-label": about.name },
      this.table,
      this.more,
    );
    new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && this.#showMore(), {
      root: this.element,
    }).observe(this.more);
  }

  /** @param {Row[]} rows @param {boolean} [fromTop] begin with the first rows again */
  setRows(rows, fromTop = false) {
    this.rows = rows;
    if (fromTop) this.shown = CHUNK;
    this.#draw();
  }

  /** @returns {import("./csv.js").Table} */
  csv() {
    const { name, columns } = this.about;
    return {
      name,
      columns: columns.map((column) => column.name),
      rows: this.#sorted().map((row) => columns.map((column) => column.value(row))),
    };
  }

  /** Mark a row, as when it is pointed at elsewhere. @param {string | null} id */
  mark(id) {
    for (const [name, { tr }] of this.drawn) tr.classList.toggle("marked", name === id);
  }

  #heading(column) {
    const press = () => {
      const same = this.sort.name === column.name;
      this.sort = { name: column.name, down: same ? !this.sort.down : Boolean(column.downFirst) };
      this.about.onSort?.(this.sort);
      this.shown = CHUNK;
      this.#draw();
      this.element.scrollTop = 0;
    };
    return el(
      "th",
      { scope: "col", class: column.numeric ? "number" : null, title: column.title },
      el(
        "button",
        { type: "button", on: { click: press } },
        column.label,
        el("span", { class: "arrow", "aria-hidden": "true" }),
      ),
    );
  }

  #sorted() {
    const column = this.about.columns.find((one) => one.name === this.sort.name) ?? this.about.columns[0];
    const way = this.sort.down ? -1 : 1;
    const keyed = this.rows.map((row) => ({ row, value: column.value(row) }));
    keyed.sort((a, b) => {
      const [noA, noB] = [a.value === null || a.value === undefined, b.value === null || b.value === undefined];
      if (noA || noB) return Number(noA) - Number(noB) || this.#tie(a.row, b.row); // those without a value come last
      const order = typeof a.value === "string" ? collator.compare(a.value, b.value) : a.value - b.value;
      return way * order || this.#tie(a.row, b.row);
    });
    return keyed.map((one) => one.row);
  }

  #tie(a, b) {
    return this.about.tie?.(a, b) || collator.compare(this.about.id(a), this.about.id(b));
  }

  #draw() {
    this.about.columns.forEach((column, i) => {
      const isSorted = column.name === this.sort.name;
      if (isSorted) this.headings[i].setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else this.headings[i].removeAttribute("aria-sort");
    });
    const sorted = this.#sorted().slice(0, this.shown);
    const kept = new Map();
    const trs = sorted.map((row) => {
      const id = this.about.id(row);
      const one = this.drawn.get(id) ?? this.#newRow(id);
      this.#fill(one, row);
      kept.set(id, one);
      return one.tr;
    });
    this.drawn = kept;
    this.#place(trs);
    const left = this.rows.length - sorted.length;
    this.more.hidden = left <= 0;
    this.more.textContent = `Show more (${left} left)`;
  }

  #newRow(id) {
    const tr = el("tr", { "data-id": id });
    const find = () => this.rows.find((row) => this.about.id(row) === id) ?? null;
    if (this.about.onPoint) {
      tr.addEventListener("pointerenter", () => this.about.onPoint(find()));
      tr.addEventListener("pointerleave", () => this.about.onPoint(null));
    }
    return { tr, texts: [] };
  }

  #fill(one, row) {
    this.about.columns.forEach((column, i) => {
      const text = column.text ? column.text(row) : String(column.value(row) ?? "–");
      if (one.texts[i] === text) return;
      one.texts[i] = text;
      let cell = one.tr.children[i];
      if (!cell) {
        cell = i === 0 ? el("th", { scope: "row" }) : el("td", { class: column.numeric ? "number" : null });
        one.tr.append(cell);
      }
      put(cell, column.cell ? column.cell(row) : text);
    });
  }

  /** Put rows in order without moving those in place, because a moved row loses the focus. */
  #place(trs) {
    const focused = /** @type {HTMLElement | null} */ (
      this.body.contains(document.activeElement) ? document.activeElement : null
    );
    const wanted = new Set(trs);
    for (const tr of [...this.body.children]) if (!wanted.has(tr)) tr.remove();
    trs.forEach((tr, i) => {
      if (this.body.children[i] !== tr) this.body.insertBefore(tr, this.body.children[i] ?? null);
    });
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  }

  #showMore() {
    if (this.shown >= this.rows.length) return;
    this.shown += CHUNK;
    this.#draw();
  }
}

const collator = new Intl.Collator("en", { numeric: true });
