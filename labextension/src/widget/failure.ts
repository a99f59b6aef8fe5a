/** An error: its class, its sentence, the person's own lines, and what to do. */
import type { FailureShot } from '../generated/views';
import { h } from './dom';

export function failureElement(failure: FailureShot): HTMLElement {
  const lines = failure.lines.flatMap(line => [
    h('em', line.place),
    `\n${String(line.line).padStart(6)}  ${line.text}\n`
  ]);
  return h('div.failure',
    h('div.error', h('b', failure.type), failure.message),
    lines.length ? h('pre.lines', ...lines) : null,
    ...failure.notes.map(note => h('div.dim', note)),
    failure.hint ? h('div.dim', failure.hint) : null
  );
}

/** The run's own failure, rebuilt only when it is another one. */
export class FailureView {
  readonly el = h('div', { hidden: true });
  #shown = '';

  update(failure: FailureShot | null): void {
    const key = JSON.stringify(failure);
    if (key !== this.#shown) {
      this.#shown = key;
      this.el.hidden = failure === null;
      this.el.replaceChildren(...(failure ? [failureElement(failure)] : []));
    }
  }
}
