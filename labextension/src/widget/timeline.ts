/** Where the time went: one bar for the run, one row a box, and the path that decided the end. */
import type { TimesShot } from '../generated/views';
import { h } from './dom';
import { duration, number } from './format';
import type { State } from './state';

const TONES: Record<string, string> = { running: 'run', waiting: 'wait', retrying: 'bad', queued: 'warn' };

export class TimelineView {
  readonly el = h('div.wide.scroll.time', { role: 'region', 'aria-label': 'timeline', tabindex: '0', hidden: true });
  #shown: unknown = null;

  constructor(private open: (node: string) => void) {}

  update(state: State): void {
    const { times } = state;
    this.el.hidden = state.tab !== 'time';
    if (!this.el.hidden && times !== null && times !== this.#shown) {
      this.#shown = times;
      const { scrollTop } = this.el;
      this.el.replaceChildren(...this.#build(times));
      this.el.scrollTop = scrollTop;
    }
  }

  #build({ parts, rows, totalS, critical, leftOut }: TimesShot): (Node | string)[] {
    let at = 0;
    const bar = (kind: string, from: number, to: number, words: string): HTMLElement => {
      const share = (seconds: number): string => `${(100 * seconds) / (totalS || 1)}%`;
      return h('i', { 'data-tone': TONES[kind] ?? kind, title: `${words}: ${duration(to - from)}`, style: `left:${share(from)};width:${share(to - from)}` });
    };
    return [
      h('div.lane', ...parts.map(p => bar(p.kind, (at += p.seconds) - p.seconds, at, p.words))),
      h('div.row.keys.num', ...parts.map(p => h('span', h('i', { 'data-tone': TONES[p.kind] ?? p.kind }), `${p.words} ${duration(p.seconds)}`))),
      ...rows.map(row =>
        h(
          'div.lanes',
          { 'data-critical': row.critical },
          h('button.link', { title: row.critical ? 'on the critical path' : null, click: () => this.open(row.id) }, row.label),
          h('div.lane', ...row.spans.map(([kind, from, to]) => bar(kind, from, to, kind)))
        )
      ),
      leftOut ? h('div.dim', `and ${number(leftOut)} shorter ones`) : '',
      critical ? h('div.dim', h('b', 'critical path '), critical) : ''
    ];
  }
}
