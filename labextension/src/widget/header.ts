/** The one line on top: name, status in words, progress, elapsed, and what can be done; below it the thin bar. */
import { attr, h, text } from './dom';
import { count, ticking, duration, number } from './format';
import type { Action } from './model';
import { setShape, shape, TONE } from './shapes';
import { sentFor, type State } from './state';

export class Header {
  readonly el: HTMLElement;
  #name = h('b.name');
  #icon = shape('pending');
  #words = h('span');
  #state = h('span.state', this.#icon, this.#words);
  #steps = h('span.num');
  #failed = h('button.link.failed', { title: 'show them', click: () => this.seek('failed') });
  #elapsed = h('span.num');
  #buttons = h('span.buttons');
  #bar = h('i');
  #track = h('div.bar', { role: 'progressbar', 'aria-label': 'steps done', 'aria-valuemin': '0' }, this.#bar);
  #said = h('div.said', { role: 'alert', hidden: true });
  #shown = '';

  constructor(
    private act: (action: Action) => void,
    private seek: (text: string) => void
  ) {
    this.el = h(
      'div',
      h('div.top', this.#name, this.#state, h('span.space'), this.#failed, this.#steps, this.#elapsed, this.#buttons),
      this.#track,
      this.#said
    );
  }

  update(state: State): void {
    const { snap } = state;
    text(this.#name, snap.workflow);
    attr(this.#name, 'title', snap.workflow);
    text(this.#words, snap.words);
    setShape(this.#icon.firstElementChild as SVGPathElement, TONE[snap.tone] ?? 'pending');
    attr(this.#state, 'data-tone', snap.tone);
    const { done, total } = snap.counts;
    text(this.#steps, `${number(done)} of ${count(total, 'step')}${snap.spent && ` · ${snap.spent}`}`);
    attr(this.#steps, 'title', snap.counts.fromJournal ? `${snap.counts.fromJournal} from the journal` : '');
    const { failed } = snap.counts;
    this.#failed.hidden = !failed || (failed === 1 && snap.failure !== null); // else the words say it already
    text(this.#failed, `${number(failed)} failed`);
    this.#bar.style.width = `${total ? (100 * done) / total : 0}%`;
    attr(this.#track, 'data-tone', snap.tone);
    attr(this.#track, 'aria-valuenow', String(done));
    attr(this.#track, 'aria-valuemax', String(total));
    this.#updateButtons(state);
  }

  /** Called every second while something runs. */
  tick(state: State, now: number): void {
    const { activeS, activeSince, startedAt } = state.snap;
    const going = activeSince !== null;
    const seconds = activeS + (going ? Math.max(0, now - activeSince) : 0);
    text(this.#elapsed, startedAt === null ? '' : going ? ticking(seconds) : duration(seconds));
    attr(this.#elapsed, 'title', startedAt === null ? '' : `started ${new Date(startedAt * 1000).toLocaleString()}`);
  }

  #updateButtons(state: State): void {
    const list = state.snap.buttons;
    const key = JSON.stringify(list);
    if (key !== this.#shown) {
      this.#shown = key;
      this.#buttons.replaceChildren(
        ...list.map(b =>
          h(
            'button',
            { class: b.primary ? 'wf-button' : 'wf-button wf-quiet', 'data-action': b.action, click: () => this.act(b.action as Action) },
            b.label
          )
        )
      );
    }
    let refusal = '';
    for (const button of this.#buttons.querySelectorAll('button')) {
      const sent = sentFor(state, button.dataset['action'] ?? '');
      button.disabled = state.gone || (sent !== undefined && (!sent.done || sent.ok));
      refusal ||= sent?.done && !sent.ok ? sent.text : '';
    }
    text(this.#said, refusal);
    this.#said.hidden = !refusal;
  }
}
