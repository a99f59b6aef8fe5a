/** The graph as a table: the tab for eyes that prefer one, and always there for screen readers. */
import type { BoxShot } from '../generated/views';
import { attr, h, text } from './dom';
import { duration } from './format';
import { noteNow } from './graph';
import { setShape, shape } from './shapes';
import type { State } from './state';

interface Row {
  el: HTMLTableRowElement;
  icon: SVGSVGElement;
  label: HTMLElement;
  cells: HTMLElement[];
  box: BoxShot | null;
  fresh: boolean;
}

export class TableView {
  readonly el: HTMLElement;
  #body = h('tbody');
  #caption = h('caption.sr');
  #rows = new Map<string, Row>();
  #eye = false;

  constructor(private open: (node: string) => void) {
    const head = ['Step', 'Status', 'Time', 'Tries'].map(name => h('th', { scope: 'col' }, name));
    this.el = h('div.scroll', h('table.table', this.#caption, h('thead', h('tr', ...head)), this.#body));
  }

  update(state: State): void {
    const { boxes } = state.snap.graph;
    const eye = state.tab === 'table' && state.found === null;
    this.el.classList.toggle('wf-sr', !eye);
    const turned = eye !== this.#eye;
    this.#eye = eye;
    text(this.#caption, `Steps of ${state.snap.workflow}`);
    const ids = new Set(boxes.map(b => b.id));
    for (const [id, row] of this.#rows) {
      if (!ids.has(id)) {
        row.el.remove();
        this.#rows.delete(id);
      }
    }
    boxes.forEach((box, i) => {
      const row = this.#rows.get(box.id) ?? this.#make(box.id);
      if (this.#body.children[i] !== row.el) {
        this.#body.insertBefore(row.el, this.#body.children[i] ?? null);
      }
      if (row.box !== box) {
        row.fresh = true;
        attr(row.el, 'data-status', box.status);
        setShape(row.icon.firstElementChild as SVGPathElement, box.status);
        text(row.label, box.title);
        const words = box.fromJournal && box.status === 'completed' ? 'completed, from the journal' : box.status;
        text(row.cells[0]!, box.count > 1 ? box.note : words);
        text(row.cells[2]!, box.attempts > 1 && box.kind !== 'prompt' ? String(box.attempts) : '');
      }
      // Hidden from the eye it stays a table, but out of the way of the Tab key: the graph has its own.
      if (turned || row.box === null) {
        attr(row.label, 'tabindex', eye ? null : '-1');
      }
      row.box = box;
    });
  }

  tick(now: number): void {
    for (const row of this.#rows.values()) {
      const { box, cells } = row;
      const live = box && (box.since !== null || box.until !== null);
      if (box?.count === 1 && (live || row.fresh)) {
        row.fresh = false;
        text(cells[1]!, live ? noteNow(box, now) : box.durationS === null ? '' : duration(box.durationS));
      }
    }
  }

  #make(id: string): Row {
    const icon = shape('pending');
    const label = h('button.link', { click: () => this.open(id) });
    const cells = [h('td'), h('td.num'), h('td.num')];
    const el = h('tr', h('td', icon, label), ...cells);
    const row: Row = { el, icon, label, cells, box: null, fresh: true };
    this.#rows.set(id, row);
    return row;
  }
}
