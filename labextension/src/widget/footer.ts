/** Tabs, and the quiet facts. */
import { attr, h, text } from './dom';
import { ago, count, exact } from './format';
import type { State, Tab } from './state';

const TABS: [Tab, string][] = [
  ['graph', 'Graph'],
  ['table', 'Table'],
  ['time', 'Timeline'],
  ['log', 'Log']
];

export class Footer {
  readonly el: HTMLElement;
  #tabs: HTMLButtonElement[];
  #facts = h('span.num');

  #field = h('input', { type: 'search', class: 'wf-find', placeholder: 'Find', 'aria-label': 'find steps' });
  #due: ReturnType<typeof setTimeout> | undefined;

  constructor(choose: (tab: Tab) => void, seek: (text: string) => void) {
    this.#field.addEventListener('input', () => {
      clearTimeout(this.#due);
      this.#due = setTimeout(() => seek(this.#field.value.trim()), 150);
    });
    this.#field.addEventListener('keydown', e => e.stopPropagation()); // a notebook has keys of its own
    this.#tabs = TABS.map(([tab, label]) =>
      h('button.tab', { 'data-tab': tab, click: () => choose(tab) }, label)
    );
    this.el = h('div.foot', h('span', { role: 'group', 'aria-label': 'view' }, ...this.#tabs), this.#field, h('span.space'), this.#facts);
  }

  update(state: State): void {
    for (const tab of this.#tabs) {
      attr(tab, 'aria-pressed', String(tab.dataset['tab'] === state.tab));
      const asked = tab.dataset['tab'] === 'log' ? state.log : tab.dataset['tab'] === 'time' ? state.times : state;
      tab.disabled = state.gone && asked === null;
    }
    this.#field.disabled = state.gone;
    this.#field.hidden = state.snap.nodes < 2;
    if (this.#field.value.trim() !== state.sought && this.#field !== document.activeElement) {
      this.#field.value = state.sought;
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
