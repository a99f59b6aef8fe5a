/** The graph: boxes and lines at the places that Python gave. Status changes touch attributes, never places. */
import type { BoxShot, EdgeShot } from '../generated/views';
import { attr, h, s, text } from './dom';
import { ticking } from './format';
import { setShape, shapePath } from './shapes';
import type { State } from './state';

/** Letters smaller than this share of their size are not read, so a wider graph scrolls instead. */
const SMALLEST = 0.75;

interface Drawn {
  g: SVGGElement;
  box: BoxShot | null;
  shape: SVGPathElement;
  label: SVGTextElement;
  note: SVGTextElement;
  bar: SVGRectElement;
  lost: SVGRectElement;
  fresh: boolean;
}

interface Line {
  path: SVGPathElement;
  edge: EdgeShot | null;
  on: boolean | null;
}

export class GraphView {
  readonly el: HTMLElement;
  #lines = s('g');
  #boxes = s('g');
  #svg = s('svg', { role: 'group' }, this.#lines, this.#boxes);
  #drawn = new Map<string, Drawn>();
  #paths = new Map<string, Line>();
  #edges: EdgeShot[] | null = null;
  #opened: string | null = null;
  #found: unknown = null;
  #aim = '';
  #size: [number, number] = [0, 0];
  #held = false;
  #state: State | null = null;
  #observer: ResizeObserver;

  constructor(private open: (node: string | null) => void) {
    this.el = h('div.graph', { keydown: (e: KeyboardEvent) => this.#key(e) }, this.#svg);
    for (const kind of ['wheel', 'pointerdown', 'touchstart']) {
      this.el.addEventListener(kind, () => (this.#held = true), { passive: true }); // the person scrolls: leave it to them
    }
    this.#observer = new ResizeObserver(() => this.#resize());
    this.#observer.observe(this.el);
  }

  dispose(): void {
    this.#observer.disconnect();
  }

  update(state: State): void {
    this.#state = state;
    const { graph } = state.snap;
    const structure = graph.edges !== this.#edges || graph.boxes.length !== this.#drawn.size;
    if (structure) {
      this.#edges = graph.edges;
      this.#size = [graph.width, graph.height];
      attr(this.#svg, 'viewBox', `0 0 ${graph.width} ${graph.height}`);
      this.#place(graph.boxes);
      this.#resize();
    }
    this.#draw(graph.boxes, graph.edges, structure);
    for (const box of graph.boxes) {
      this.#paint(this.#drawn.get(box.id)!, box);
    }
    for (const id of new Set([this.#opened, state.open])) {
      const g = id === null ? null : this.#drawn.get(id)?.g;
      g && attr(g, 'aria-expanded', String(id === state.open));
    }
    this.#opened = state.open;
    this.#mark(state);
    attr(this.#svg, 'aria-label', summary(state));
    this.el.hidden = graph.boxes.length === 0;
    this.#follow(structure);
  }

  /** Times that pass. */
  tick(now: number): void {
    for (const drawn of this.#drawn.values()) {
      const { box, note } = drawn;
      if (box && (drawn.fresh || box.since !== null || box.until !== null)) {
        drawn.fresh = false;
        text(note, noteNow(box, now));
      }
    }
  }

  focus(id: string): void {
    this.#drawn.get(id)?.g.focus();
  }

  #place(boxes: BoxShot[]): void {
    const ids = new Set(boxes.map(b => b.id));
    for (const [id, drawn] of this.#drawn) {
      if (!ids.has(id)) {
        drawn.g.remove();
        this.#drawn.delete(id);
      }
    }
    const anchor = this.#anchor();
    const was = anchor?.box;
    for (const box of boxes) {
      let drawn = this.#drawn.get(box.id);
      if (!drawn) {
        drawn = this.#make(box);
        this.#drawn.set(box.id, drawn);
      }
      if (box.id === anchor?.box!.id) {
        // The person looks at this one: it stays where it is on the screen, whatever grows around it.
        this.el.classList.add('wf-still');
        this.el.scrollBy((box.x - was!.x) * this.#scale(), (box.y - was!.y) * this.#scale());
        requestAnimationFrame(() => this.el.classList.remove('wf-still'));
      }
      if (drawn.box && drawn.box.x === box.x && drawn.box.y === box.y && drawn.box.w === box.w) {
        continue;
      }
      drawn.g.style.transform = `translate(${box.x}px,${box.y}px)`;
      for (const rect of drawn.g.querySelectorAll('.wf-rect')) {
        attr(rect, 'width', String(box.w));
        attr(rect, 'height', String(box.h));
      }
    }
    const roving = [...this.#drawn.values()].some(d => d.g.getAttribute('tabindex') === '0');
    if (!roving && boxes[0]) {
      attr(this.#drawn.get(boxes[0].id)!.g, 'tabindex', '0');
    }
  }

  /** Where a person scrolled by themselves: the box they are at, else the first in sight. */
  #anchor(): Drawn | null {
    if (!this.#held || !this.#state) {
      return null;
    }
    const at = document.activeElement?.getAttribute('data-id') ?? this.#opened;
    const own = at ? this.#drawn.get(at) : undefined;
    if (own?.box) {
      return own;
    }
    const [left, top, scale] = [this.el.scrollLeft, this.el.scrollTop, this.#scale()];
    return [...this.#drawn.values()].find(({ box }) => box && box.x * scale >= left && box.y * scale >= top) ?? null;
  }

  #scale(): number {
    return Number(this.#svg.getAttribute('width')) / this.#size[0] || 1;
  }

  /** Lines are known by what they join, so that one that stays glides with its boxes. */
  #draw(boxes: BoxShot[], edges: EdgeShot[], structure: boolean): void {
    const kept = new Set<string>();
    for (const edge of edges) {
      const to = boxes[edge.b]!;
      const key = `${boxes[edge.a]!.id} ${to.id}`;
      let line = this.#paths.get(key);
      if (!line) {
        line = { path: this.#lines.appendChild(s('path')), edge: null, on: null };
        this.#paths.set(key, line);
      }
      kept.add(key);
      if (line.edge?.path !== edge.path) {
        attr(line.path, 'd', edge.path);
      }
      const on = to.status !== 'pending';
      if (line.on !== on) {
        attr(line.path, 'class', on ? 'wf-edge wf-on' : 'wf-edge');
      }
      line.edge = edge;
      line.on = on;
    }
    if (structure) {
      for (const [key, { path }] of this.#paths) {
        if (!kept.has(key)) {
          path.remove();
          this.#paths.delete(key);
        }
      }
    }
  }

  /** What a search found stands out; the first of it comes into sight. */
  #mark(state: State): void {
    if (state.found === this.#found) {
      return;
    }
    this.#found = state.found;
    const hits = new Set(state.found?.boxes);
    this.el.classList.toggle('wf-finding', state.found !== null);
    for (const [id, { g }] of this.#drawn) {
      g.classList.toggle('wf-hit', hits.has(id));
    }
    const first = state.found?.boxes[0];
    if (first !== undefined) {
      this.#held = true;
      const box = this.#drawn.get(first)?.box;
      box && this.#show(box);
    }
  }

  #make(box: BoxShot): Drawn {
    const shape = shapePath(box.status);
    const label = s('text', { x: 31, y: 19 });
    const note = s('text', { x: 31, y: 34, class: 'wf-note' });
    const bar = s('rect', { class: 'wf-share', x: 1, y: box.h - 3, height: 2 });
    const lost = s('rect', { class: 'wf-share wf-lost', y: box.h - 3, height: 2 });
    const g = s(
      'g',
      { class: 'wf-node', tabindex: '-1', role: 'button', 'data-id': box.id, 'aria-expanded': 'false', click: () => this.open(box.id) },
      s('title'),
      box.count > 1 ? s('rect', { class: 'wf-rect wf-behind', x: 4, y: 4, rx: 5 }) : null,
      s('rect', { class: 'wf-rect', rx: 5 }),
      s('g', { transform: `translate(10 ${box.h / 2 - 7})` }, shape),
      label,
      note,
      bar,
      lost
    );
    this.#boxes.append(g);
    return { g, box: null, shape, label, note, bar, lost, fresh: true };
  }

  #paint(drawn: Drawn, box: BoxShot): void {
    if (drawn.box === box) {
      return;
    }
    drawn.box = box;
    drawn.fresh = true;
    attr(drawn.g, 'data-status', box.status);
    attr(drawn.g, 'data-kind', box.kind);
    attr(drawn.g, 'data-failed', box.failed ? '' : null);
    attr(drawn.g, 'aria-label', `${box.title}: ${box.status}, ${box.note}`);
    setShape(drawn.shape, box.status);
    text(drawn.g.firstElementChild!, box.title);
    text(drawn.label, box.label);
    const wide = (box.w - 2) * (box.progress ?? 0);
    attr(drawn.bar, 'width', String(Math.max(0, wide)));
    attr(drawn.lost, 'x', String(1 + wide));
    attr(drawn.lost, 'width', String(box.failed ? Math.max(3, ((box.w - 2) * box.failed) / box.count) : 0));
  }

  #resize(): void {
    const [width, height] = this.#size;
    const room = this.el.clientWidth;
    if (!width || !room) {
      return;
    }
    const scale = Math.min(1, Math.max(SMALLEST, room / width));
    attr(this.#svg, 'width', String(Math.floor(width * scale)));
    attr(this.#svg, 'height', String(Math.ceil(height * scale)));
    this.#follow(false);
  }

  /** Keep what matters in sight, until the person scrolls by themselves. */
  #follow(structure: boolean): void {
    const boxes = this.#state?.snap.graph.boxes ?? [];
    const target =
      boxes.find(b => b.status === 'waiting' && b.kind !== 'sleep') ??
      boxes.findLast(b => b.status === 'running' || b.status === 'retrying') ??
      boxes.find(b => b.status === 'failed') ??
      boxes[boxes.length - 1];
    const room = this.el.clientWidth;
    if (!target || this.#held || !room || (!structure && target.id === this.#aim)) {
      return;
    }
    this.#aim = target.id;
    this.#show(target);
  }

  #show(box: BoxShot): void {
    const scale = this.#scale();
    const aim = (start: number, size: number, from: number, seen: number, share: number): number =>
      start * scale < from + 16 || (start + size) * scale > from + seen - 16 ? (start + size / 2) * scale - seen * share : from;
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.el;
    this.el.scrollTo(aim(box.x, box.w, scrollLeft, clientWidth, 0.75), aim(box.y, box.h, scrollTop, clientHeight, 0.5));
  }

  #key(e: KeyboardEvent): void {
    const id = (e.target as Element).getAttribute?.('data-id');
    const graph = this.#state?.snap.graph;
    if (!id || !graph) {
      return;
    }
    if (e.key === 'Enter' || e.key === ' ') {
      e.preventDefault();
      e.stopPropagation();
      this.open(id);
      return;
    }
    const at = graph.boxes.findIndex(b => b.id === id);
    const next = step(e.key, at, graph);
    if (next !== null) {
      e.preventDefault();
      e.stopPropagation(); // a notebook would move to the next cell
      const to = this.#drawn.get(graph.boxes[next]!.id)!.g;
      this.#held = true;
      for (const { g } of this.#drawn.values()) {
        g.tabIndex = -1;
      }
      to.tabIndex = 0;
      to.focus({ preventScroll: true });
      this.#show(graph.boxes[next]!);
    }
  }
}

/** Where an arrow key leads: along the lines left and right, along the column up and down. */
export function step(key: string, at: number, graph: { boxes: BoxShot[]; edges: { a: number; b: number }[] }): number | null {
  const here = graph.boxes[at];
  if (!here) {
    return null;
  }
  const near = (list: number[]): number | null =>
    list.reduce<number | null>(
      (best, i) => (best === null || Math.abs(graph.boxes[i]!.y - here.y) < Math.abs(graph.boxes[best]!.y - here.y) ? i : best),
      null
    );
  const column = (way: number): number | null =>
    near(graph.boxes.flatMap((b, i) => (b.x === here.x && (b.y - here.y) * way > 0 ? [i] : [])));
  switch (key) {
    case 'ArrowRight':
      return near(graph.edges.filter(e => e.a === at).map(e => e.b));
    case 'ArrowLeft':
      return near(graph.edges.filter(e => e.b === at).map(e => e.a));
    case 'ArrowDown':
      return column(1);
    case 'ArrowUp':
      return column(-1);
    case 'Home':
      return 0;
    case 'End':
      return graph.boxes.length - 1;
    default:
      return null;
  }
}

/** A box's second line with the time that passes. */
export function noteNow(box: BoxShot, now: number): string {
  if (box.since !== null) {
    const since = ticking(now - box.since);
    return box.note === 'running' ? since : `${box.note} ${box.note === 'waiting' ? '' : '· '}${since}`;
  }
  if (box.until !== null) {
    const left = box.until - now;
    return left > 0 ? `${box.note}, ${ticking(Math.ceil(left))}` : box.note;
  }
  return box.note;
}

function summary(state: State): string {
  const { snap } = state;
  const parts = [`${snap.counts.done} of ${snap.counts.total} steps done`];
  if (snap.counts.failed) {
    parts.push(`${snap.counts.failed} failed`);
  }
  const waiting = snap.graph.boxes.filter(b => b.status === 'waiting' && b.kind !== 'sleep').map(b => b.title);
  if (waiting.length) {
    parts.push(`${waiting.join(', ')} waits for an answer`);
  }
  return `${snap.workflow}: ${parts.join('; ')}`;
}
