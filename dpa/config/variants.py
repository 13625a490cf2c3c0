"""Sections whose keys depend on one of them: `grouping` on its `kind`, `balance` on its `strategy`.

Such a section is one of several frozen dataclasses, which whoever uses the options has in a registry. Fields, defaults,
bounds and docstrings are taken from there, so a key that does not apply is refused, and nothing is written twice."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from dpa.balance.options import BY_STRATEGY, AdaptiveOptions, NoBalancingOptions
from dpa.config._section import describe
from dpa.routing.groupings.options import BY_KIND, RING


@dataclass(frozen=True, eq=False)
class Variants:
    """A section that is one of several dataclasses. As an annotation, it makes a pydantic field of them.

    Attributes:
        section: the section's name.
        by: the key that names the variant; a text in place of the section stands for this key alone.
        classes: the dataclass of each variant.
        default: the variant where nothing names one.
    """

    section: str
    by: str
    classes: Mapping[str, type]
    default: str

    def keys_of(self, variant: str) -> list[str]:
        return sorted(field.name for field in dataclasses.fields(self.classes[variant]))

    def that_have(self, key: str) -> list[str]:
        return [variant for variant in self.classes if key in self.keys_of(variant)]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices: dict[Any, CoreSchema] = {
            name: _of_mappings(options, handler) for name, options in self.classes.items()
        }
        union = core_schema.tagged_union_schema(choices, discriminator=self.by)
        return core_schema.no_info_before_validator_function(self._written_out, union)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        union = handler(schema)
        for choice in union["oneOf"]:
            section = handler.resolve_ref_schema(choice)
            variant = section["properties"][self.by]["const"]
            if variant != self.default:
                section["required"] = [self.by]
            describe(section, self.classes[variant])
        return {"anyOf": [{"type": "string", "enum": list(self.classes)}, union]}

    def _written_out(self, given: Any) -> Any:
        if isinstance(given, str):
            return {self.by: given}
        return {self.by: self.default, **given} if isinstance(given, Mapping) else given


@dataclass(frozen=True, eq=False)
class Plain:
    """A section that is a dataclass. As an annotation, it makes a pydantic field of it.

    Attributes:
        options: the dataclass.
        short: the key for which a text or number stands that is given in place of the section; None: none may be.
    """

    options: type
    short: str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = _of_mappings(self.options, handler)
        return (
            schema if self.short is None else core_schema.no_info_before_validator_function(self._written_out, schema)
        )

    def _written_out(self, given: Any) -> Any:
        is_short = isinstance(given, str | int | float) and not isinstance(given, bool)
        return {self.short: given} if is_short else given

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        reference = handler(schema)
        section = handler.resolve_ref_schema(reference)
        describe(section, self.options)
        for field in dataclasses.fields(self.options):
            if field.default_factory is not dataclasses.MISSING:
                section["properties"][field.name]["default"] = field.default_factory()
        if self.short is None:
            return reference
        alone = {key: value for key, value in section["properties"][self.short].items() if key != "description"}
        return {"anyOf": [alone, reference]}


def _of_mappings(options: type, handler: GetCoreSchemaHandler) -> CoreSchema:
    """The schema of a dataclass that may also be a mapping, whose values stay strict."""
    schema = handler.resolve_ref_schema(handler.generate_schema(options))
    schema["strict"] = False  # type: ignore[index]
    return schema


GROUPING = Variants("grouping", "kind", BY_KIND, default=RING)
BALANCE = Variants("balance", "strategy", BY_STRATEGY, default=AdaptiveOptions.strategy)
VARIANTS = {variants.section: variants for variants in (GROUPING, BALANCE)}


@dataclass(frozen=True)
class Choice:
    """The variant of a section, and the key path that decided it; None: no key did."""

    variant: Any
    path: tuple[str, ...] | None


def choice(document: Mapping[str, Any], variants: Variants) -> Choice:
    """The variant of a section in a document, or in one of its stages. Only a ring is balanced: beside another grouping
    the strategy is `none`, unless named."""
    given = document.get(variants.section)
    if isinstance(given, str):
        return Choice(given, (variants.section,))
    if isinstance(given, Mapping) and variants.by in given:
        return Choice(given[variants.by], (variants.section, variants.by))
    if dataclasses.is_dataclass(given):
        return Choice(getattr(given, variants.by, None), (variants.section,))
    if variants is BALANCE:
        grouping = choice(document, GROUPING)
        if grouping.variant != RING:
            return Choice(NoBalancingOptions.strategy, grouping.path)
    return Choice(variants.default, None)


def with_strategy(document: Any) -> Any:
    """A document, or a stage, whose section `balance` names its strategy."""
    given = document.get(BALANCE.section, {}) if isinstance(document, Mapping) else None
    if not isinstance(given, Mapping) or BALANCE.by in given:
        return document
    return {**document, BALANCE.section: {BALANCE.by: choice(document, BALANCE).variant, **given}}
