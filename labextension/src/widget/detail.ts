/** The panel of an opened node: its inputs, output, error and log, or the members of a stack. */
import { h } from './dom';
import { failureElement } from './failure';
import { shape } from './shapes';
import { shownElement } from './shown';
import type { State } from './state';

export class DetailView {
  readonly el = h('section', { class: 'wf-detail', 'aria-label': 'details of the step', hidden: true });
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
      h(
        'div',
        { class: 'wf-row' },
        back ? h('button', { type: 'button', class: 'wf-link', click: () => this.open(back.id) }, `‹ ${back.label}`) : null,
        h('span', { class: 'wf-state', 'data-status': detail.status }, shape(detail.status), h('b', {}, detail.label)),
        h('span', { class: 'wf-dim' }, [detail.status, ...detail.facts, detail.where].filter(Boolean).join(' · ')),
        h('span', { class: 'wf-space' }),
        h('button', { type: 'button', class: 'wf-link', 'aria-label': 'close', title: 'close', click: () => this.open(null) }, '✕')
      ),
      detail.failure && state.snap.failure?.node !== detail.node ? failureElement(detail.failure) : '', // else it stands below
      h('div', { class: 'wf-parts' }, part('Inputs', detail.inputs), part('Output', detail.output)),
      detail.shown.length ? h('div', { class: 'wf-made' }, ...detail.shown.map(shownElement)) : '',
      part('Log', [...(detail.logLeftOut ? [`… ${detail.logLeftOut} lines before`] : []), ...detail.log].join('\n'), 'wf-log') ?? '',
      detail.members.length ? this.#members(state) : ''
    );
    const log = this.el.querySelector('.wf-log');
    if (log && scrolled !== undefined) {
      log.scrollTop = scrolled;
    }
  }

  #members(state: State): HTMLElement {
    const { members, membersLeftOut } = state.detail!;
    return h(
      'div',
      { class: 'wf-scroll' },
      h(
        'table',
        { class: 'wf-table' },
        h(
          'tbody',
          {},
          ...members.map(m =>
            h(
              'tr',
              { 'data-status': m.status },
              h('td', {}, h('button', { type: 'button', class: 'wf-link', click: () => this.open(m.id) }, shape(m.status), m.label)),
              h('td', { class: 'wf-dim' }, m.note)
            )
          )
        )
      ),
      membersLeftOut ? h('div', { class: 'wf-dim' }, `and ${membersLeftOut.toLocaleString('en')} more; ask SQL for all: select * from nodes`) : null
    );
  }
}

function part(title: string, content: string, more = ''): HTMLElement | null {
  return content ? h('div', {}, h('div', { class: 'wf-label' }, title), h('pre', { class: `wf-text wf-code ${more}`, tabindex: '0' }, content)) : null;
}
