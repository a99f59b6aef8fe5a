/** What a question shows beside its text, and a step's panel of what it made: tables, pictures, text. Everything as text, no markup from anyone. */
import type { Shown } from '../generated/views';
import { h } from './dom';
import { number } from './format';

const NUMBER = /^[−+-]?[\d,.  ]*\d(e[+-]?\d+)?\s*%?$/i;

export function shownElement(shown: Shown): HTMLElement | null {
  switch (shown.kind) {
    case 'table':
      return table(shown);
    case 'image':
      // Only pictures that travelled with the message; nothing is fetched.
      return shown.text?.startsWith('data:image/') ? h('img.image', { src: shown.text, alt: 'figure' }) : null;
    default:
      return shown.text ? h('pre', { class: shown.kind === 'json' ? 'wf-text wf-code' : 'wf-text' }, shown.text) : null;
  }
}

function table(shown: Shown): HTMLElement {
  const rows = shown.rows ?? [];
  const columns = shown.columns ?? [];
  const numeric = columns.map((_, c) => rows.length > 0 && rows.every(r => !r[c] || NUMBER.test(r[c]!)));
  const cell = (tag: 'td' | 'th', value: string, c: number) =>
    h(tag, { class: numeric[c] ? 'wf-right' : null, scope: tag === 'th' ? 'col' : null }, value);
  const more = (shown.total ?? 0) - rows.length;
  return h('div.shown',
    h('div.scroll', { tabindex: '0', role: 'region', 'aria-label': 'rows' },
      h('table.rows',
        h('thead', h('tr', ...columns.map((name, c) => cell('th', name, c)))),
        h('tbody', ...rows.map(row => h('tr', ...row.map((value, c) => cell('td', value, c)))))
      )
    ),
    more > 0 ? h('div.dim', `and ${number(more)} more row${more === 1 ? '' : 's'}`) : null
  );
}
