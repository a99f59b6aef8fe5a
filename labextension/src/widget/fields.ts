/** The controls of a form: one row a field, its problem under it. */
import { h, text } from './dom';
import { read, type Field, type Read } from './schema';

let serial = 0;

export class FieldRow {
  readonly el: HTMLElement;
  #problem: HTMLElement;
  #control: HTMLElement;
  #value: () => string | boolean | unknown[];

  constructor(readonly field: Field) {
    serial += 1;
    const id = `wf-f${serial}`;
    this.#problem = h('div.problem', { id: `${id}p` });
    const [control, value] = makeControl(field, id);
    this.#control = control;
    this.#value = value;
    control.setAttribute('aria-describedby', `${id}p`);
    const help = field.help ? h('div.help', field.help) : null;
    if (field.kind === 'boolean') {
      this.el = h('div.field', h('span'), h('div', h('label.check', control, field.label), help, this.#problem));
    } else {
      const group = control.tagName === 'DIV';
      const name = h(group ? 'span' : 'label', { class: 'wf-label', for: group ? null : id, id: `${id}l` }, field.label);
      if (!field.required) {
        name.append(h('small', ' optional'));
      }
      if (group) {
        control.setAttribute('aria-labelledby', `${id}l`);
      }
      this.el = h('div.field', name, h('div', control, help, this.#problem));
    }
  }

  read(): Read {
    const result = read(this.field, this.#value());
    this.say('problem' in result ? result.problem : '');
    return result;
  }

  say(problem: string): void {
    text(this.#problem, problem);
    this.el.toggleAttribute('data-bad', problem !== '');
    this.#control.setAttribute('aria-invalid', String(problem !== ''));
  }

  focus(): void {
    (this.#control.matches('input,select,textarea') ? this.#control : this.#control.querySelector('input'))?.focus();
  }
}

type Control = [HTMLElement, () => string | boolean | unknown[]];

function makeControl(field: Field, id: string): Control {
  const { initial, rule } = field;
  switch (field.kind) {
    case 'boolean': {
      const box = h('input', { type: 'checkbox', id });
      box.checked = initial === true;
      return [box, () => box.checked];
    }
    case 'choice': {
      const at = field.options.findIndex(o => JSON.stringify(o) === JSON.stringify(initial));
      return field.options.length <= 4 ? radios(field, id, at) : select(field, id, at);
    }
    case 'choices': {
      const chosen = new Set((Array.isArray(initial) ? initial : []).map(v => JSON.stringify(v)));
      const boxes = field.options.map(option => {
        const box = h('input', { type: 'checkbox' });
        box.checked = chosen.has(JSON.stringify(option));
        return box;
      });
      const labels = boxes.map((box, i) => h('label.check', box, String(field.options[i])));
      return [h('div.options', { role: 'group' }, ...labels), () => field.options.filter((_, i) => boxes[i]!.checked)];
    }
    case 'lines':
    case 'json': {
      const value = field.kind === 'lines' ? (Array.isArray(initial) ? initial.join('\n') : '') : initial === undefined ? '' : JSON.stringify(initial, null, 2);
      const area = h('textarea', { id, rows: 3, spellcheck: 'false', placeholder: field.kind === 'lines' ? 'one a line' : 'JSON' });
      area.value = value;
      return [area, () => area.value];
    }
    default: {
      const long = field.kind === 'text' && (Number(rule['maxLength']) > 200 || rule['format'] === 'textarea' || String(initial ?? '').includes('\n'));
      const control = long
        ? h('textarea', { id, rows: 4 })
        : h('input', { id, type: 'text', inputmode: field.kind === 'text' ? null : 'decimal', class: field.kind === 'text' ? null : 'wf-short', autocomplete: 'off' });
      control.value = initial === undefined || initial === null ? '' : String(initial);
      return [control, () => control.value];
    }
  }
}

function radios(field: Field, id: string, at: number): Control {
  const inputs = field.options.map((_, i) => {
    const radio = h('input', { type: 'radio', name: id, value: i });
    radio.checked = i === at;
    return radio;
  });
  const labels = inputs.map((input, i) => h('label.check', input, String(field.options[i])));
  return [h('div.options', { role: 'radiogroup' }, ...labels), () => inputs.find(r => r.checked)?.value ?? ''];
}

function select(field: Field, id: string, at: number): Control {
  const control = h(
    'select',
    { id },
    h('option', { value: '' }, 'choose'),
    ...field.options.map((o, i) => h('option', { value: i }, String(o)))
  );
  control.value = at < 0 ? '' : String(at);
  return [control, () => control.value];
}
