import { describe, expect, it } from 'vitest';
import { fields, humane, read, refusals, type Field } from '../src/widget/schema';

const one = (rule: Record<string, unknown>, required = true, defs = {}): Field =>
  fields({ properties: { x: rule }, required: required ? ['x'] : [], $defs: defs }, null)[0]!;

describe('fields of a schema', () => {
  it('knows the subset and takes the rest as JSON', () => {
    const kinds = (rule: Record<string, unknown>): string => one(rule).kind;
    expect(kinds({ type: 'string' })).toBe('text');
    expect(kinds({ type: 'integer' })).toBe('integer');
    expect(kinds({ type: 'boolean' })).toBe('boolean');
    expect(kinds({ enum: ['a', 1] })).toBe('choice');
    expect(kinds({ type: 'array', items: { enum: ['a'] } })).toBe('choices');
    expect(kinds({ type: 'array', items: { type: 'number' } })).toBe('lines');
    expect(kinds({ type: 'object' })).toBe('json');
    expect(kinds({ anyOf: [{ type: 'string' }, { type: 'integer' }] })).toBe('json');
  });

  it('follows references and takes null out of a union', () => {
    const field = one({ anyOf: [{ $ref: '#/$defs/Colour' }, { type: 'null' }] }, true, { Colour: { enum: ['red', 'blue'] } });
    expect(field).toMatchObject({ kind: 'choice', options: ['red', 'blue'], nullable: true, required: false });
    expect(read(field, '')).toEqual({ value: null });
  });

  it('survives a reference to itself', () => {
    expect(fields({ properties: { x: { $ref: '#/properties/x' } } }, null)).toHaveLength(1);
  });

  it('starts from what was given, else from the default', () => {
    const schema = { properties: { a: { type: 'string', default: 'd' }, b: { type: 'string', default: 'd' } } };
    expect(fields(schema, { a: 'given' }).map(f => f.initial)).toEqual(['given', 'd']);
  });

  it('makes names readable', () => {
    expect([humane('max_rows'), humane('maxRows'), humane('x')]).toEqual(['Max rows', 'Max rows', 'X']);
  });
});

describe('what was typed', () => {
  it('is checked as the schema says', () => {
    expect(read(one({ type: 'integer' }), '1.5')).toEqual({ problem: 'a whole number is needed' });
    expect(read(one({ type: 'number' }), 'abc')).toEqual({ problem: 'not a number' });
    expect(read(one({ type: 'number', exclusiveMinimum: 1 }), '1')).toEqual({ problem: 'must be above 1' });
    expect(read(one({ type: 'number', minimum: 1 }), '1')).toEqual({ value: 1 });
    expect(read(one({ type: 'string', minLength: 3 }), 'ab')).toEqual({ problem: 'at least 3 characters' });
    expect(read(one({ type: 'string', pattern: '^a' }), 'b')).toEqual({ problem: 'must match ^a' });
    expect(read(one({ type: 'string', pattern: '(?P<x>a)' }), 'b')).toEqual({ value: 'b' });
    expect(read(one({ type: 'array', items: { type: 'integer' } }), '1\n\n2')).toEqual({ value: [1, 2] });
    expect(read(one({ type: 'array', items: { type: 'integer' } }), '1\nx')).toEqual({ problem: 'x: not a number' });
    expect(read(one({ type: 'array', items: { enum: ['a'] }, minItems: 1 }), [])).toEqual({ problem: 'choose at least one' });
    expect(read(one({ enum: ['a', 2] }), '1')).toEqual({ value: 2 });
    expect(read(one({ type: 'object' }), '{"a": 1}')).toEqual({ value: { a: 1 } });
    expect(read(one({ type: 'object' }), '{')).toEqual({ problem: 'not valid JSON' });
  });

  it('may be left out where it is optional', () => {
    expect(read(one({ type: 'integer' }), ' ')).toEqual({ problem: 'needed' });
    expect(read(one({ type: 'integer' }, false), ' ')).toEqual({ value: undefined });
    expect(read(one({ enum: ['a'] }), '')).toEqual({ problem: 'choose one' });
  });
});

it('spreads a refusal over the fields that it names', () => {
  expect(refusals('2 problems\n  - days: at least 1\n  - other: odd', ['days'])).toEqual({
    fields: { days: 'at least 1' },
    rest: '2 problems\nother: odd'
  });
});
