/** The graph: boxes and lines at the places that Python gave. Status changes touch attributes, never places. */
import type { BoxShot } from '../generated/views';
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
}

export class GraphView {
  readonly el: HTMLElement;
  #lines = s('g');
  #boxes = s('g');
  #svg = s('svg', { role: 'img' }, this.#lines, this.#boxes);
  #drawn = new Map<string, Drawn>();
  #paths: SVGPathElement[] = [];
  #hash = '';
  #aim = '';
  #size: [number, number] = [0, 0];
  #held = false;
  #state: State | null = null;
  #observer: ResizeObserver;

  constructor(private open: (node: string | null) => void) {
    this.el = h('div', { class: 'wf-graph', keydown: (e: KeyboardEvent) => this.#key(e) }, this.#svg);
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
    const structure = graph.hash !== this.#hash;
    if (structure) {
      this.#hash = graph.hash;
      this.#size = [graph.width, graph.height];
      attr(this.#svg, 'viewBox', `0 0 ${graph.width} ${graph.height}`);
      this.#place(graph.boxes);
      while (this.#paths.length > graph.edges.length) {
        this.#paths.pop()!.remove();
      }
      while (this.#paths.length < graph.edges.length) {
        this.#paths.push(this.#lines.appendChild(s('path')));
      }
      this.#resize();
    }
    graph.edges.forEach((edge, i) => {
      attr(this.#paths[i]!, 'd', edge.path);
      attr(this.#paths[i]!, 'class', edge.on ? 'wf-edge wf-on' : 'wf-edge');
    });
    for (const box of graph.boxes) {
      this.#paint(this.#drawn.get(box.id)!, box, state.open === box.id);
    }
    attr(this.#svg, 'aria-label', summary(state));
    this.el.hidden = graph.boxes.length === 0;
    this.#follow(structure);
  }

  /** Times that pass. */
  tick(now: number): void {
    for (const { box, note } of this.#drawn.values()) {
      text(note, box ? noteNow(box, now) : '');
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
    for (const box of boxes) {
      let drawn = this.#drawn.get(box.id);
      if (!drawn) {
        drawn = this.#make(box);
        this.#drawn.set(box.id, drawn);
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

  #make(box: BoxShot): Drawn {
    const shape = shapePath(box.status);
    const label = s('text', { x: 31, y: 19 });
    const note = s('text', { x: 31, y: 34, class: 'wf-note' });
    const bar = s('rect', { class: 'wf-share', x: 1, y: box.h - 3, height: 2 });
    const g = s(
      'g',
      { class: 'wf-node', tabindex: '-1', role: 'button', 'data-id': box.id, click: () => this.open(box.id) },
      s('title'),
      box.count > 1 ? s('rect', { class: 'wf-rect wf-behind', x: 4, y: 4, rx: 5 }) : null,
      s('rect', { class: 'wf-rect', rx: 5 }),
      s('g', { transform: `translate(10 ${box.h / 2 - 7})` }, shape),
      label,
      note,
      bar
    );
    this.#boxes.append(g);
    return { g, box: null, shape, label, note, bar };
  }

  #paint(drawn: Drawn, box: BoxShot, open: boolean): void {
    const changed = drawn.box !== box;
    drawn.box = box;
    attr(drawn.g, 'aria-expanded', String(open));
    if (!changed) {
      return;
    }
    attr(drawn.g, 'data-status', box.status);
    attr(drawn.g, 'data-kind', box.kind);
    attr(drawn.g, 'aria-label', `${box.title}: ${box.status}, ${box.note}`);
    setShape(drawn.shape, box.status);
    text(drawn.g.firstElementChild!, box.title);
    text(drawn.label, box.label);
    attr(drawn.bar, 'width', String(box.progress === null ? 0 : Math.max(0, (box.w - 2) * box.progress)));
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
    const scale = Number(this.#svg.getAttribute('width')) / this.#size[0] || 1;
    const aim = (start: number, size: number, from: number, seen: number, share: number): number =>
      start * scale < from + 16 || (start + size) * scale > from + seen - 16 ? (start + size / 2) * scale - seen * share : from;
    const { scrollLeft, scrollTop, clientHeight } = this.el;
    this.el.scrollTo(aim(target.x, target.w, scrollLeft, room, 0.75), aim(target.y, target.h, scrollTop, clientHeight, 0.5));
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
      attr(e.target as Element, 'tabindex', '-1');
      attr(to, 'tabindex', '0');
      to.focus();
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
