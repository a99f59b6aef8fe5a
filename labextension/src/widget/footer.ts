/** Tabs, and the quiet facts. */
import { attr, h, text } from './dom';
import { ago, count, exact } from './format';
import type { State, Tab } from './state';

const TABS: [Tab, string][] = [
  ['graph', 'Graph'],
  ['table', 'Table'],
  ['log', 'Log']
];

export class Footer {
  readonly el: HTMLElement;
  #tabs: HTMLButtonElement[];
  #facts = h('span', { class: 'wf-num' });

  constructor(choose: (tab: Tab) => void) {
    this.#tabs = TABS.map(([tab, label]) =>
      h('button', { type: 'button', class: 'wf-tab', 'data-tab': tab, click: () => choose(tab) }, label)
    );
    this.el = h('div', { class: 'wf-foot' }, h('span', { role: 'group', 'aria-label': 'view' }, ...this.#tabs), h('span', { class: 'wf-space' }), this.#facts);
  }

  update(state: State): void {
    for (const tab of this.#tabs) {
      attr(tab, 'aria-pressed', String(tab.dataset['tab'] === state.tab));
      tab.disabled = state.gone && tab.dataset['tab'] === 'log' && state.log === null;
    }
  }

  tick(state: State, now: number): void {
    const { startedAt, nodes } = state.snap;
    const facts = [count(nodes, 'node')];
    if (startedAt !== null) {
      facts.push(`started ${ago(now - startedAt)}`);
      attr(this.#facts, 'title', exact(startedAt));
    }
    text(this.#facts, facts.join(' · '));
  }
}
