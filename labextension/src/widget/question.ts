/** An open question: its text, what it shows, and the control for its kind. Built once, so that typing survives updates. */
import type { QuestionShot } from '../generated/views';
import { h, text } from './dom';
import { ticking } from './format';
import { FieldRow } from './fields';
import { fields, refusals } from './schema';
import { shownElement } from './shown';
import { questionTarget, sentFor, type State } from './state';

export class QuestionView {
  readonly el: HTMLElement;
  #problem = h('div.problem', { role: 'alert' });
  #deadline = h('span.dim');
  #controls: HTMLFieldSetElement;
  #status = h('span.dim', { 'aria-live': 'polite' });

  constructor(
    readonly question: QuestionShot,
    private send: (value: unknown) => void
  ) {
    this.#controls = h('fieldset.controls');
    const hint = question.hint ? h('span.dim.hint', 'or in a cell: ', h('code', question.hint)) : 'answer in the widget below';
    const row = h('div.row', this.#status, h('span.space'), this.#deadline, hint);
    this.el = h('form.ask', { 'data-kind': question.kind, 'data-prompt': question.prompt, submit: (e: Event) => e.preventDefault() },
      h('div.message', question.message),
      ...question.shown.map(shownElement),
      this.#problem,
      this.#controls
    );
    text(this.#problem, question.error);
    const buttons = this.#build();
    this.#controls.append(h('div.row.answer', ...buttons, row));
  }

  update(state: State): void {
    const sent = sentFor(state, questionTarget(this.question.node, this.question.generation));
    const busy = sent !== undefined && (!sent.done || sent.ok);
    this.#controls.disabled = busy || state.gone;
    text(this.#status, busy ? (sent.done ? sent.text || 'answered' : 'sending …') : '');
    if (sent?.done && !sent.ok) {
      text(this.#problem, sent.text);
    }
  }

  tick(now: number): void {
    const { deadline, defaultWords } = this.question;
    if (deadline !== null) {
      const left = Math.max(0, deadline - now);
      text(this.#deadline, defaultWords ? `takes “${defaultWords}” in ${ticking(left)}` : `open for ${ticking(left)}`);
    }
  }

  #answer(value: unknown): void {
    text(this.#problem, '');
    this.send(value);
  }

  #button(label: string, primary: boolean, value?: () => unknown, answer = ''): HTMLButtonElement {
    return h('button', { type: value ? null : 'submit', class: primary ? 'wf-button wf-primary' : 'wf-button', 'data-answer': answer || null,
      click: value && (() => this.#answer(value())) }, label); // prettier-ignore
  }

  #onSubmit(read: () => { value: unknown } | null): void {
    this.el.addEventListener('submit', () => {
      const result = this.#controls.disabled ? null : read();
      if (result) {
        this.#answer(result.value);
      }
    });
  }

  #build(): HTMLButtonElement[] {
    const { kind, options, initial } = this.question;
    switch (kind) {
      case 'confirm': {
        const [yes, no] = options.length === 2 ? options : ['Yes', 'No'];
        return [this.#button(yes!, true, () => true, 'yes'), this.#button(no!, false, () => false, 'no')];
      }
      case 'select':
        return this.#buildSelect(options);
      case 'form':
        return this.#buildForm();
      case 'custom':
        return []; // its own widget stands below
      case 'editor': {
        const area = h('textarea.editor', { 'aria-label': this.question.message, spellcheck: 'false', rows: 8 });
        area.value = typeof initial === 'string' ? initial : '';
        area.addEventListener('keydown', e => {
          if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
            e.preventDefault();
            e.stopPropagation();
            this.el instanceof HTMLFormElement && this.el.requestSubmit();
          }
        });
        this.#controls.append(area);
        this.#onSubmit(() => ({ value: area.value }));
        return [this.#button('Save', true)];
      }
      default: {
        const input = h('input', { type: 'text', class: 'wf-input', 'aria-label': this.question.message, autocomplete: 'off' });
        input.value = typeof initial === 'string' ? initial : '';
        this.#controls.append(input);
        this.#onSubmit(() => ({ value: input.value }));
        return [this.#button('Send', true)];
      }
    }
  }

  #buildSelect(options: string[]): HTMLButtonElement[] {
    if (options.length <= 4 && options.join('').length <= 60) {
      return options.map(option => this.#button(option, false, () => option, option));
    }
    const name = `wf-${this.question.node}-${this.question.generation}-${Math.random()}`;
    const inputs = options.map((value, i) => h('input', { type: 'radio', name, value: i, 'data-answer': value }));
    const labels = inputs.map((input, i) => h('label.check', input, options[i]!));
    this.#controls.append(h('div.list', { role: 'radiogroup', 'aria-label': this.question.message }, ...labels));
    this.#onSubmit(() => {
      const at = inputs.findIndex(input => input.checked);
      text(this.#problem, at < 0 ? 'choose one' : '');
      return at < 0 ? null : { value: options[at] };
    });
    return [this.#button('Send', true)];
  }

  #buildForm(): HTMLButtonElement[] {
    const rows = fields(this.question.schema, this.question.initial).map(field => new FieldRow(field));
    this.#controls.append(h('div.fields', ...rows.map(row => row.el)));
    const refused = refusals(this.question.error, rows.map(row => row.field.name)); // prettier-ignore
    text(this.#problem, refused.rest);
    rows.forEach(row => row.say(refused.fields[row.field.name] ?? ''));
    this.#onSubmit(() => {
      const value: Record<string, unknown> = {};
      let first: FieldRow | null = null;
      for (const row of rows) {
        const result = row.read();
        if ('problem' in result) {
          first ??= row;
        } else if (result.value !== undefined) {
          value[row.field.name] = result.value;
        }
      }
      first?.focus();
      return first ? null : { value };
    });
    return [this.#button('Send', true)];
  }
}

/** All open questions, each kept as long as it is the same question. */
export class Questions {
  readonly el = h('div');
  #views = new Map<string, QuestionView>();

  constructor(private send: (question: QuestionShot, value: unknown) => void) {}

  update(state: State): void {
    const keys = new Set<string>();
    for (const question of state.snap.questions) {
      const key = questionTarget(question.node, question.generation);
      keys.add(key);
      if (!this.#views.has(key)) {
        const view = new QuestionView(question, value => this.send(question, value));
        this.#views.set(key, view);
        this.el.append(view.el);
      }
      this.#views.get(key)!.update(state);
    }
    for (const [key, view] of this.#views) {
      if (!keys.has(key)) {
        view.el.remove();
        this.#views.delete(key);
      }
    }
  }

  tick(now: number): void {
    this.#views.forEach(view => view.tick(now));
  }
}
