/** The panel of an opened node: its inputs, output, error and log, or the members of a stack. */
import type { MemberShot } from '../generated/views';
import { h } from './dom';
import { number } from './format';
import { failureElement } from './failure';
import { shape } from './shapes';
import { shownElement } from './shown';
import type { State } from './state';

export class DetailView {
  readonly el = h('section.detail', { 'aria-label': 'details of the step', hidden: true });
  #shown: unknown = null;
  #way: { id: string; label: string } | null = null;

  constructor(private open: (node: string | null) => void) {
    this.el.addEventListener('keydown', e => {
      if (e.key === 'Escape') {
        e.stopPropagation();
        this.open(null);
      }
    });
  }

  update(state: State): void {
    this.el.hidden = state.open === null;
    if (state.open === null) {
      this.#way = null;
    }
    const { detail } = state;
    if (state.open === null || detail === null || detail === this.#shown) {
      return;
    }
    this.#shown = detail;
    if (detail.members.length) {
      this.#way = { id: detail.node, label: detail.label };
    } else if (state.snap.graph.boxes.some(b => b.id === detail.node)) {
      this.#way = null;
    }
    const back = this.#way && this.#way.id !== detail.node ? this.#way : null;
    const scrolled = this.el.querySelector('.wf-log')?.scrollTop;
    this.el.replaceChildren(
      h('div.row',
        back ? h('button.link', { click: () => this.open(back.id) }, `‹ ${back.label}`) : null,
        h('span.state', { 'data-status': detail.status }, shape(detail.status), h('b', detail.label)),
        h('span.dim', [detail.status, ...detail.facts, detail.where].filter(Boolean).join(' · ')),
        h('span.space'),
        h('button.link', { 'aria-label': 'close', title: 'close', click: () => this.open(null) }, '✕')
      ),
      detail.failure && state.snap.failure?.node !== detail.node ? failureElement(detail.failure) : '', // else it stands below
      h('div.parts', part('Inputs', detail.inputs), part('Output', detail.output), part('Said', detail.said, 'wf-log wf-said')),
      detail.shown.length ? h('div.made', ...detail.shown.map(shownElement)) : '',
      part('Log', [...(detail.logLeftOut ? [`… ${detail.logLeftOut} lines before`] : []), ...detail.log].join('\n'), 'wf-log') ?? '',
      detail.members.length ? members(detail.members, detail.membersLeftOut, this.open) : ''
    );
    const log = this.el.querySelector('.wf-log');
    if (log && scrolled !== undefined) {
      log.scrollTop = scrolled;
    }
  }
}

/** Nodes of a stack, or what a search found: a row each, which opens. */
export function members(list: MemberShot[], leftOut: number, open: (node: string) => void): HTMLElement {
  const row = (m: MemberShot): HTMLElement =>
    h(
      'tr',
      { 'data-status': m.status },
      h('td', h('button.link', { click: () => open(m.id) }, shape(m.status), m.label)),
      h('td.dim', m.note)
    );
  return h('div.scroll',
    h('table.table', h('tbody', ...list.map(row))),
    leftOut ? h('div.dim', `and ${number(leftOut)} more; ask SQL for all: select * from nodes`) : null
  );
}

function part(title: string, content: string, more = ''): HTMLElement | null {
  return content ? h('div', h('div.label', title), h('pre', { class: `wf-text wf-code ${more}`, tabindex: '0' }, content)) : null;
}
