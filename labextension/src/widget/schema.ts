/** A form's fields from a JSON Schema, and checks that need no server. Pure: no elements here. */

export type Kind = 'text' | 'number' | 'integer' | 'boolean' | 'choice' | 'choices' | 'lines' | 'json';

export interface Field {
  name: string;
  label: string;
  help: string;
  kind: Kind;
  required: boolean;
  nullable: boolean;
  options: unknown[];
  items: 'text' | 'number' | 'integer';
  initial: unknown;
  rule: Schema;
}

export type Schema = Record<string, unknown>;

const obj = (value: unknown): Schema => (value !== null && typeof value === 'object' ? (value as Schema) : {});

/** The fields of an object schema, in its order. What is beyond the subset becomes a field of JSON text. */
export function fields(schema: Schema, initial: unknown): Field[] {
  const required = new Set(Array.isArray(schema['required']) ? (schema['required'] as string[]) : []);
  const given = obj(initial);
  return Object.entries(obj(schema['properties'])).map(([name, raw]) => {
    const [rule, nullable] = resolve(obj(raw), schema);
    const { kind, options, items } = kindOf(rule, schema);
    const value = name in given ? given[name] : (obj(raw)['default'] ?? rule['default']);
    return {
      name,
      label: typeof obj(raw)['title'] === 'string' ? String(obj(raw)['title']) : humane(name),
      help: String(obj(raw)['description'] ?? ''),
      kind,
      required: required.has(name) && !nullable && kind !== 'boolean',
      nullable,
      options,
      items,
      initial: value,
      rule
    };
  });
}

/** `maxRows`, `max_rows`: Max rows. */
export function humane(name: string): string {
  const words = name.replace(/([a-z])([A-Z])/g, '$1 $2').replace(/[_-]+/g, ' ').trim().toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Follow references and take `null` out of unions. */
function resolve(rule: Schema, root: Schema, depth = 0): [Schema, boolean] {
  if (depth < 8 && typeof rule['$ref'] === 'string') {
    const target = rule['$ref'].split('/').slice(1).reduce<unknown>((at, key) => obj(at)[key], root);
    const [inner, nullable] = resolve(obj(target), root, depth + 1);
    return [{ ...inner, ...rule, $ref: undefined }, nullable];
  }
  const union = (rule['anyOf'] ?? rule['oneOf']) as unknown;
  if (Array.isArray(union)) {
    const rest = union.map(obj).filter(u => u['type'] !== 'null');
    if (rest.length === 1) {
      return [{ ...rule, anyOf: undefined, oneOf: undefined, ...resolve(rest[0]!, root, depth + 1)[0] }, rest.length < union.length];
    }
  }
  return [rule, false];
}

function kindOf(rule: Schema, root: Schema): { kind: Kind; options: unknown[]; items: 'text' | 'number' | 'integer' } {
  const plain = (kind: Kind, options: unknown[] = [], items: 'text' | 'number' | 'integer' = 'text') => ({ kind, options, items });
  if (Array.isArray(rule['enum'])) {
    return plain('choice', rule['enum']);
  }
  if ('const' in rule) {
    return plain('choice', [rule['const']]);
  }
  switch (rule['type']) {
    case 'string':
      return plain('text');
    case 'number':
      return plain('number');
    case 'integer':
      return plain('integer');
    case 'boolean':
      return plain('boolean');
    case 'array': {
      const [item] = resolve(obj(rule['items']), root);
      if (Array.isArray(item['enum'])) {
        return plain('choices', item['enum']);
      }
      if (item['type'] === 'string' || item['type'] === 'number' || item['type'] === 'integer') {
        return plain('lines', [], item['type'] === 'string' ? 'text' : item['type']);
      }
    }
  }
  return plain('json');
}

/** What a person typed, as the value it stands for; `undefined` leaves the field out. */
export type Read = { value: unknown } | { problem: string };

export function read(field: Field, typed: string | boolean | unknown[]): Read {
  if (field.kind === 'boolean') {
    return { value: typed === true };
  }
  if (field.kind === 'choices') {
    return checkList(field, typed as unknown[]);
  }
  if (field.kind === 'choice') {
    const index = Number(typed);
    if (typed === '' || !(index in field.options)) {
      return empty(field);
    }
    return { value: field.options[index] };
  }
  const textValue = String(typed);
  if (textValue.trim() === '') {
    return field.kind === 'text' && !field.required && !field.nullable ? { value: textValue || undefined } : empty(field);
  }
  switch (field.kind) {
    case 'text':
      return checkText(field.rule, textValue);
    case 'number':
    case 'integer':
      return checkNumber(field.rule, textValue, field.kind === 'integer');
    case 'lines': {
      const values: unknown[] = [];
      for (const line of textValue.split('\n').map(l => l.trim()).filter(Boolean)) {
        const one = field.items === 'text' ? { value: line } : checkNumber({}, line, field.items === 'integer');
        if ('problem' in one) {
          return { problem: `${line}: ${one.problem}` };
        }
        values.push(one.value);
      }
      return checkList(field, values);
    }
    default:
      try {
        return { value: JSON.parse(textValue) as unknown };
      } catch {
        return { problem: 'not valid JSON' };
      }
  }
}

function empty(field: Field): Read {
  if (field.required) {
    return { problem: field.kind === 'choice' ? 'choose one' : 'needed' };
  }
  return { value: field.nullable ? null : undefined };
}

function checkText(rule: Schema, value: string): Read {
  const [min, max, pattern] = [rule['minLength'], rule['maxLength'], rule['pattern']];
  if (typeof min === 'number' && [...value].length < min) {
    return { problem: `at least ${min} characters` };
  }
  if (typeof max === 'number' && [...value].length > max) {
    return { problem: `at most ${max} characters` };
  }
  if (typeof pattern === 'string') {
    try {
      if (!new RegExp(pattern, 'u').test(value)) {
        return { problem: `must match ${pattern}` };
      }
    } catch {
      // a pattern of another dialect is left to the server
    }
  }
  return { value };
}

function checkNumber(rule: Schema, typed: string, integer: boolean): Read {
  const value = Number(typed.trim());
  if (!Number.isFinite(value)) {
    return { problem: 'not a number' };
  }
  if (integer && !Number.isInteger(value)) {
    return { problem: 'a whole number is needed' };
  }
  const limits: [string, boolean, string][] = [
    ['minimum', value < Number(rule['minimum']), 'at least'],
    ['maximum', value > Number(rule['maximum']), 'at most'],
    ['exclusiveMinimum', value <= Number(rule['exclusiveMinimum']), 'above'],
    ['exclusiveMaximum', value >= Number(rule['exclusiveMaximum']), 'below']
  ];
  const broken = limits.find(([name, breaks]) => typeof rule[name] === 'number' && breaks);
  return broken ? { problem: `must be ${broken[2]} ${String(rule[broken[0]])}` } : { value };
}

function checkList(field: Field, values: unknown[]): Read {
  const [min, max] = [field.rule['minItems'], field.rule['maxItems']];
  if (typeof min === 'number' && values.length < min) {
    return { problem: min === 1 ? 'choose at least one' : `at least ${min}` };
  }
  if (typeof max === 'number' && values.length > max) {
    return { problem: `at most ${max}` };
  }
  return { value: values };
}

/** Spread a refusal over the fields it names (`field: reason`, one a line); the rest stands above the form. */
export function refusals(error: string, names: string[]): { fields: Record<string, string>; rest: string } {
  const found: Record<string, string> = {};
  const rest: string[] = [];
  for (const line of error.split('\n').map(l => l.replace(/^\s*-\s*/, '').trim()).filter(Boolean)) {
    const name = names.find(n => line.startsWith(`${n}:`));
    if (name) {
      found[name] = line.slice(name.length + 1).trim();
    } else {
      rest.push(line);
    }
  }
  return { fields: found, rest: rest.join('\n') };
}
