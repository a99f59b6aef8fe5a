/** What a search found, those first that need attention. */
import { h } from './dom';
import { members } from './detail';
import { count } from './format';
import type { State } from './state';

export class FoundView {
  readonly el = h('section.found', { 'aria-label': 'found', hidden: true });
  #shown: unknown = null;

  constructor(private open: (node: string) => void) {}

  update({ found }: State): void {
    this.el.hidden = found === null;
    if (found !== null && found !== this.#shown) {
      const total = found.nodes.length + found.leftOut;
      this.el.replaceChildren(
        h('div.dim', { role: 'status' }, total ? `${count(total, 'step')} with “${found.text}”` : `No step has “${found.text}”.`),
        total ? members(found.nodes, found.leftOut, this.open) : ''
      );
    }
    this.#shown = found;
  }
}
