/** Everything that the steps printed, in one place. */
import { h } from './dom';
import { number } from './format';
import type { State } from './state';

export class LogView {
  readonly el = h('pre.text.code.log.wide', { tabindex: '0', role: 'region', 'aria-label': 'log of the run', hidden: true });
  #shown: unknown = null;

  update(state: State): void {
    this.el.hidden = state.tab !== 'log';
    if (this.el.hidden || state.log === this.#shown) {
      return;
    }
    this.#shown = state.log;
    const end = this.el.scrollTop + this.el.clientHeight >= this.el.scrollHeight - 20;
    const { log, logLeftOut } = state.log!;
    const lines = logLeftOut ? [`… ${number(logLeftOut)} lines before`, ...log] : log;
    this.el.textContent = lines.length ? lines.join('\n') : 'Nothing was printed.';
    if (end) {
      this.el.scrollTop = this.el.scrollHeight; // stays at the end unless the person read further up
    }
  }
}
