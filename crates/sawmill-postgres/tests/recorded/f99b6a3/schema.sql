--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: sawmill; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA sawmill;


--
-- Name: add_1(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_1(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_1_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_1_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_1_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_10(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_10(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_10_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_10_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_10_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_11(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_11(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_11_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_11_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_11_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_12(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_12(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_12_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_12_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_12_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_2(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_2(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_2_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_2_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_2_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_3(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_3(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_3_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_3_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_3_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_4(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_4(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_4_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_4_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_4_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_5(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_5(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_5_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_5_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_5_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_6(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_6(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_6_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_6_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_6_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_7(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_7(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_7_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_7_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_7_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_8(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_8(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_8_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_8_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_8_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: add_9(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.add_9(smallint[], bigint[], uuid[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$ BEGIN IF $10 = 0 THEN
                 INSERT INTO "sawmill".message_9_0 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 1 THEN
                 INSERT INTO "sawmill".message_9_1 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; IF $10 = 2 THEN
                 INSERT INTO "sawmill".message_9_2 (xid, n, many, shard, id, created_ms, due_ms, again, key, headers, payload)
                 SELECT (SELECT pg_current_xact_id()::text::int8 + shift FROM "sawmill".meta), n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF; END $_$;


--
-- Name: change(integer, text, text, text, bigint, bigint, bytea, bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.change(lock_class integer, lock_name text, lasting text, name text, expected bigint, next bigint, content bytea, old bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    AS $$
    BEGIN
        PERFORM set_config('synchronous_commit', lasting, true), set_config('lock_timeout', '10s', true);
        PERFORM pg_advisory_xact_lock(lock_class, hashtext(lock_name));
        IF expected <> coalesce((SELECT e.version FROM "sawmill".entry AS e WHERE e.key = name
                                 ORDER BY e.version DESC LIMIT 1), 0) THEN
            RETURN false;
        END IF;
        IF content IS NULL THEN
            DELETE FROM "sawmill".entry AS e WHERE e.key = name;
            RETURN true;
        END IF;
        INSERT INTO "sawmill".entry (key, version, value) VALUES (name, next, content);
        IF old IS NOT NULL THEN
            DELETE FROM "sawmill".entry AS e WHERE e.key = name AND e.version > old AND e.version <= expected;
        END IF;
        RETURN true;
    END $$;


--
-- Name: newest(text); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.newest(name text) RETURNS TABLE(c0 text, c1 bigint, c2 bytea)
    LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    AS $$
    BEGIN
        RETURN QUERY SELECT e.key, e.version, e.value FROM "sawmill".entry AS e WHERE e.key = name
            ORDER BY e.version DESC LIMIT 1;
    END $$;


--
-- Name: newest_between(text, text); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.newest_between(first text, last text) RETURNS TABLE(c0 text, c1 bigint, c2 bytea)
    LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    AS $$
    BEGIN
        RETURN QUERY WITH RECURSIVE newest AS (
            (SELECT e.key, e.version, e.value FROM "sawmill".entry AS e WHERE e.key >= first AND e.key < last
             ORDER BY e.key, e.version DESC LIMIT 1)
            UNION ALL
            SELECT next.* FROM newest AS n CROSS JOIN LATERAL (
                SELECT e.key, e.version, e.value FROM "sawmill".entry AS e WHERE e.key > n.key AND e.key < last
                ORDER BY e.key, e.version DESC LIMIT 1) AS next)
        SELECT n.key, n.version, n.value FROM newest AS n;
    END $$;


--
-- Name: read_1(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_1(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_1_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_1_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_1_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_1_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_1_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_1_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_10(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_10(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_10_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_10_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_10_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_10_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_10_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_10_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_11(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_11(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_11_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_11_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_11_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_11_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_11_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_11_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_12(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_12(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_12_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_12_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_12_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_12_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_12_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_12_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_2(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_2(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_2_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_2_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_2_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_2_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_2_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_2_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_3(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_3(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_3_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_3_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_3_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_3_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_3_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_3_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_4(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_4(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_4_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_4_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_4_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_4_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_4_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_4_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_5(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_5(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_5_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_5_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_5_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_5_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_5_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_5_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_6(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_6(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_6_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_6_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_6_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_6_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_6_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_6_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_7(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_7(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_7_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_7_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_7_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_7_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_7_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_7_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_8(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_8(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_8_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_8_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_8_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_8_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_8_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_8_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


--
-- Name: read_9(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: sawmill; Owner: -
--

CREATE FUNCTION sawmill.read_9(integer[], integer[], bigint[], smallint[], bigint[], bigint[], bigint[], bigint) RETURNS TABLE(c0 bigint, c1 bigint, c2 bigint, c3 uuid, c4 bigint, c5 bigint, c6 bytea, c7 bytea, c8 bytea, c9 integer)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $_$ BEGIN RETURN QUERY SELECT NULL::int8, shift, (SELECT greatest((SELECT xid FROM "sawmill".message_9_0 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_9_1 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1), (SELECT xid FROM "sawmill".message_9_2 WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1))), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM "sawmill".meta
         UNION ALL
         SELECT want, xid, n, id, created_ms, due_ms, key, headers, payload, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ((SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_9_0 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_9_1 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most) UNION ALL (SELECT xid, n, id, created_ms, due_ms, key, headers, payload, many FROM "sawmill".message_9_2 WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8; END $_$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: aside_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_1 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_10; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_10 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_10 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_10_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_10 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_10_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_11; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_11 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_11 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_11_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_11 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_11_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_12; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_12 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_12 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_12_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_12 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_12_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_1_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_1 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_1_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_2 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_2_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_2 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_2_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_3; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_3 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_3 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_3_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_3 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_3_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_4; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_4 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_4 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_4_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_4 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_4_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_5; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_5 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_5 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_5_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_5 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_5_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_6; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_6 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_6 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_6_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_6 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_6_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_7; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_7 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_7 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_7_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_7 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_7_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_8; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_8 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_8 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_8_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_8 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_8_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: aside_9; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.aside_9 (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL
);
ALTER TABLE ONLY sawmill.aside_9 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: aside_9_seq_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.aside_9 ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.aside_9_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: dropped; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.dropped (
    newest bigint NOT NULL
);


--
-- Name: entry; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.entry (
    key text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    value bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='10000');


--
-- Name: finished; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.finished (
    id uuid NOT NULL,
    reader text NOT NULL COLLATE pg_catalog."C",
    at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: known_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_1 (
    id uuid NOT NULL
);


--
-- Name: known_10; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_10 (
    id uuid NOT NULL
);


--
-- Name: known_11; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_11 (
    id uuid NOT NULL
);


--
-- Name: known_12; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_12 (
    id uuid NOT NULL
);


--
-- Name: known_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_2 (
    id uuid NOT NULL
);


--
-- Name: known_3; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_3 (
    id uuid NOT NULL
);


--
-- Name: known_4; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_4 (
    id uuid NOT NULL
);


--
-- Name: known_5; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_5 (
    id uuid NOT NULL
);


--
-- Name: known_6; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_6 (
    id uuid NOT NULL
);


--
-- Name: known_7; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_7 (
    id uuid NOT NULL
);


--
-- Name: known_8; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_8 (
    id uuid NOT NULL
);


--
-- Name: known_9; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.known_9 (
    id uuid NOT NULL
);


--
-- Name: message_10_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_10_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_10_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_10_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_10_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_10_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_10_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_10_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_10_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_11_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_11_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_11_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_11_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_11_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_11_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_11_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_11_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_11_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_12_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_12_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_12_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_12_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_12_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_12_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_12_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_12_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_12_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_1_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_1_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_1_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_1_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_1_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_1_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_1_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_1_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_1_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_2_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_2_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_2_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_2_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_2_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_2_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_2_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_2_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_2_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_3_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_3_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_3_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_3_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_3_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_3_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_3_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_3_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_3_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_4_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_4_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_4_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_4_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_4_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_4_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_4_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_4_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_4_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_5_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_5_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_5_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_5_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_5_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_5_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_5_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_5_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_5_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_6_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_6_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_6_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_6_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_6_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_6_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_6_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_6_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_6_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_7_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_7_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_7_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_7_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_7_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_7_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_7_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_7_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_7_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_8_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_8_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_8_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_8_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_8_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_8_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_8_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_8_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_8_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_9_0; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_9_0 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_9_0 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_9_1; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_9_1 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_9_1 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: message_9_2; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.message_9_2 (
    xid bigint NOT NULL,
    n bigint NOT NULL,
    shard smallint NOT NULL,
    id uuid NOT NULL,
    created_ms bigint NOT NULL,
    due_ms bigint,
    again boolean NOT NULL,
    key bytea,
    headers bytea,
    payload bytea NOT NULL,
    many integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY sawmill.message_9_2 ALTER COLUMN payload SET STORAGE EXTERNAL;


--
-- Name: meta; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.meta (
    version integer NOT NULL,
    shift bigint NOT NULL,
    server text NOT NULL
);


--
-- Name: topic; Type: TABLE; Schema: sawmill; Owner: -
--

CREATE TABLE sawmill.topic (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    shards integer NOT NULL,
    retention_ms bigint NOT NULL,
    drops_unread boolean NOT NULL,
    current integer NOT NULL
);


--
-- Name: topic_id_seq; Type: SEQUENCE; Schema: sawmill; Owner: -
--

ALTER TABLE sawmill.topic ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sawmill.topic_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Data for Name: aside_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.aside_1 OVERRIDING SYSTEM VALUE VALUES (1, 0, '01a1f644-11bb-298c-c893-6e97ccea9da7', 1795133018555, 4102444800000, false, '\x64', NULL, '\x6c61746572');
INSERT INTO sawmill.aside_1 OVERRIDING SYSTEM VALUE VALUES (2, 0, '01a1f644-11ce-213b-80a2-63aa2b42b90e', 1795133018574, 4102444800000, false, NULL, NULL, '\x63616e63656c6c6564');
INSERT INTO sawmill.aside_1 OVERRIDING SYSTEM VALUE VALUES (3, 2, '01a1f644-11e1-55f0-9f3e-3385725676ff', 1795133018593, 4102444800000, true, NULL, '\x0000000e7361776d696c6c2d756e697175650000000e6f6e636520612063656e74757279', '\x756e69717565');


--
-- Data for Name: aside_10; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: aside_11; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: aside_12; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: aside_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.aside_2 OVERRIDING SYSTEM VALUE VALUES (1, 3, '01a1f644-11aa-463f-e736-4193847b7d53', 1795133018538, 4188318397627, true, '\x63', '\x0000000e7361776d696c6c2d6f726967696e0000001a30314d37563438344441303839595043355154483047304a48540000000f7361776d696c6c2d686973746f7279000000b55b7b22617474656d7074223a312c226174223a313739353133333031383637342c22776f726b6572223a22776f726b65722d65366663643264393765316563633066222c226572726f72223a226578697420636f64652031227d2c7b22617474656d7074223a322c226174223a313739353133333031383637362c22776f726b6572223a22776f726b65722d65366663643264393765316563633066222c226572726f72223a226578697420636f64652031227d5d000000107361776d696c6c2d617474656d7074730000000132', '\x6661696c6564');


--
-- Data for Name: aside_3; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: aside_4; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: aside_5; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: aside_6; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: aside_7; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: aside_8; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: aside_9; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: dropped; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.dropped VALUES (736);


--
-- Data for Name: entry; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.entry VALUES ('uniques/t1/005', 1783618, '\x7b226e616d6573223a7b226f6e636520612063656e74757279223a7b226964223a2230314d37563438344631415152395946484b474e53354358515a222c2273757265223a66616c73657d7d7d');
INSERT INTO sawmill.entry VALUES ('uniques/t1/005', 2759435, '\x7b226e616d6573223a7b226f6e636520612063656e74757279223a7b226964223a2230314d37563438344631415152395946484b474e53354358515a222c2273757265223a747275657d7d7d');
INSERT INTO sawmill.entry VALUES ('groups/t1/default', 1954504, '\x7b226f726465726564223a66616c73652c2264656c6976657279223a2261742d6c656173742d6f6e6365227d');
INSERT INTO sawmill.entry VALUES ('duties/t1/keeper', 1285014, '\x7b2267726f7570223a2264656661756c74222c22776f726b6572223a22776f726b65722d65366663643264393765316563633066227d');
INSERT INTO sawmill.entry VALUES ('duties/t2/keeper', 1556108, '\x7b2267726f7570223a2264656661756c74222c22776f726b6572223a22776f726b65722d65366663643264393765316563633066227d');
INSERT INTO sawmill.entry VALUES ('duties/t3/keeper', 1161293, '\x7b2267726f7570223a2264656661756c74222c22776f726b6572223a22776f726b65722d65366663643264393765316563633066227d');
INSERT INTO sawmill.entry VALUES ('shards/t1/default/0002', 1591081, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a312c22636c61696d73223a5b7b22746f6b656e223a312c226f776e6572223a22776f726b65722d65366663643264393765316563633066222c2266726f6d223a22222c227370616e223a2230333030303065393035303065363035303230303031222c22636f756e74223a317d5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('shards/t1/default/0003', 2051503, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a312c22636c61696d73223a5b7b22746f6b656e223a312c226f776e6572223a22776f726b65722d65366663643264393765316563633066222c2266726f6d223a22222c227370616e223a2230333030303065393035303065383035303230303032222c22636f756e74223a327d5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('shards/t1/default/0002', 2252985, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a312c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a312c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('shards/t1/default/0003', 2928556, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a312c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a312c2272657472696564223a312c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('groups/t1/line', 1127966, '\x7b226f726465726564223a747275652c2264656c6976657279223a2261742d6c656173742d6f6e6365227d');
INSERT INTO sawmill.entry VALUES ('shards/t1/line/0002', 1265770, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a312c22636c61696d73223a5b7b22746f6b656e223a312c226f776e6572223a22776f726b65722d65333036666365316337656430313432222c2266726f6d223a22222c227370616e223a2230333030303065393035303065363035303230303031222c22636f756e74223a317d5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('duties/t1/keeper', 2311795, '\x7b2267726f7570223a226c696e65222c22776f726b6572223a22776f726b65722d65333036666365316337656430313432227d');
INSERT INTO sawmill.entry VALUES ('duties/t4/keeper', 1253747, '\x7b2267726f7570223a226c696e65222c22776f726b6572223a22776f726b65722d65333036666365316337656430313432227d');
INSERT INTO sawmill.entry VALUES ('duties/t5/keeper', 1538402, '\x7b2267726f7570223a226c696e65222c22776f726b6572223a22776f726b65722d65333036666365316337656430313432227d');
INSERT INTO sawmill.entry VALUES ('shards/t1/line/0003', 1155180, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a312c22636c61696d73223a5b7b22746f6b656e223a312c226f776e6572223a22776f726b65722d65333036666365316337656430313432222c2266726f6d223a22222c227370616e223a2230333030303065393035303065383035303230303032222c22636f756e74223a327d5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('shards/t1/line/0002', 3023118, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a312c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a312c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('shards/t1/line/0003', 2731755, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a312c22636c61696d73223a5b7b22746f6b656e223a312c2266726f6d223a22222c227370616e223a2230333030303065393035303065383035303230303032222c22636f756e74223a322c22646f6e65223a5b5b302c305d5d2c226661696c75726573223a7b2231223a327d7d5d2c2274616c6c79223a7b22646f6e65223a312c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('groups/t1/again', 1188703, '\x7b226f726465726564223a66616c73652c2264656c6976657279223a2261742d6c656173742d6f6e6365227d');
INSERT INTO sawmill.entry VALUES ('duties/t6/keeper', 1543950, '\x7b2267726f7570223a22616761696e222c22776f726b6572223a22776f726b65722d38333834333165313036363837656135227d');
INSERT INTO sawmill.entry VALUES ('shards/t1/again/0003', 1974970, '\x7b22637572736f72223a22303230303030653930353030653430353032222c22746f6b656e223a312c22636c61696d73223a5b7b22746f6b656e223a312c226f776e6572223a22776f726b65722d38333834333165313036363837656135222c2266726f6d223a22222c227370616e223a2230333030303065393035303065343035303230303031222c22636f756e74223a317d5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('duties/t1/keeper', 3991558, '\x7b2267726f7570223a22616761696e222c22776f726b6572223a22776f726b65722d38333834333165313036363837656135227d');
INSERT INTO sawmill.entry VALUES ('duties/t7/keeper', 1683928, '\x7b2267726f7570223a22616761696e222c22776f726b6572223a22776f726b65722d38333834333165313036363837656135227d');
INSERT INTO sawmill.entry VALUES ('shards/t1/again/0003', 2287053, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a322c22636c61696d73223a5b7b22746f6b656e223a322c226f776e6572223a22776f726b65722d38333834333165313036363837656135222c2266726f6d223a22303230303030653930353030653430353032222c227370616e223a2230333030303065393035303065383035303230316534303530323031222c22636f756e74223a317d5d2c2274616c6c79223a7b22646f6e65223a312c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('shards/t1/again/0002', 1951021, '\x7b22637572736f72223a223031653730353030222c22746f6b656e223a312c22636c61696d73223a5b7b22746f6b656e223a312c226f776e6572223a22776f726b65722d38333834333165313036363837656135222c2266726f6d223a22222c227370616e223a2230333030303065373035303065363035303230303031222c22636f756e74223a317d5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('shards/t1/again/0002', 2297438, '\x7b22637572736f72223a223031653730353030222c22746f6b656e223a312c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a312c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('shards/t1/again/0003', 3238014, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a322c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a322c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('shards/t1/again/0000', 1694497, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2270617373223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t1/again/0001', 1220500, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2270617373223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t1/again/0002', 3998577, '\x7b22637572736f72223a22222c22746f6b656e223a312c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a312c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2270617373223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t1/again/0003', 4284700, '\x7b22637572736f72223a22222c22746f6b656e223a322c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a322c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2270617373223a317d');
INSERT INTO sawmill.entry VALUES ('uniques/t1/005', 3709660, '\x7b226e616d6573223a7b226f6e636520612063656e74757279223a7b226964223a2230314d37563438344631415152395946484b474e53354358515a222c2273757265223a747275652c22736574746c6564223a5b22616761696e225d7d7d7d');
INSERT INTO sawmill.entry VALUES ('groups/t1/killed', 1651524, '\x7b226f726465726564223a66616c73652c2264656c6976657279223a2261742d6c656173742d6f6e6365227d');
INSERT INTO sawmill.entry VALUES ('members/killed/worker-5f0be2b612d9e780', 1066045, '\x7b2262656174223a312c22746f70696373223a5b227431222c227438225d2c22736c6f7473223a312c2274746c5f6d73223a333030302c22626561745f6174223a313739353133333031383930377d');
INSERT INTO sawmill.entry VALUES ('duties/t1/keeper', 4948233, '\x7b2267726f7570223a226b696c6c6564222c22776f726b6572223a22776f726b65722d35663062653262363132643965373830227d');
INSERT INTO sawmill.entry VALUES ('duties/t9/keeper', 1702884, '\x7b2267726f7570223a226b696c6c6564222c22776f726b6572223a22776f726b65722d35663062653262363132643965373830227d');
INSERT INTO sawmill.entry VALUES ('duties/t8/keeper', 1570718, '\x7b2267726f7570223a226b696c6c6564222c22776f726b6572223a22776f726b65722d35663062653262363132643965373830227d');
INSERT INTO sawmill.entry VALUES ('shards/t1/killed/0002', 1303872, '\x7b22637572736f72223a223031653930353030222c22746f6b656e223a312c22636c61696d73223a5b7b22746f6b656e223a312c226f776e6572223a22776f726b65722d35663062653262363132643965373830222c2266726f6d223a22222c227370616e223a2230333030303065393035303065363035303230303031222c22636f756e74223a317d5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('groups/t1/lost', 2078483, '\x7b226f726465726564223a66616c73652c2264656c6976657279223a2261742d6d6f73742d6f6e6365227d');
INSERT INTO sawmill.entry VALUES ('members/lost/worker-781cd7544b4b5b21', 1363217, '\x7b2262656174223a312c22746f70696373223a5b227431222c22743130225d2c22736c6f7473223a312c2274746c5f6d73223a333030302c22626561745f6174223a313739353133333031383936387d');
INSERT INTO sawmill.entry VALUES ('duties/t10/keeper', 1568264, '\x7b2267726f7570223a226c6f7374222c22776f726b6572223a22776f726b65722d37383163643735343462346235623231227d');
INSERT INTO sawmill.entry VALUES ('duties/t11/keeper', 1846212, '\x7b2267726f7570223a226c6f7374222c22776f726b6572223a22776f726b65722d37383163643735343462346235623231227d');
INSERT INTO sawmill.entry VALUES ('shards/t1/lost/0003', 1679712, '\x7b22637572736f72223a22303230303030653930353030653430353032222c22746f6b656e223a312c22636c61696d73223a5b7b22746f6b656e223a312c226f776e6572223a22776f726b65722d37383163643735343462346235623231222c2266726f6d223a22222c227370616e223a2230333030303065393035303065343035303230303031222c22636f756e74223a312c226f6e6365223a747275657d5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d7d');
INSERT INTO sawmill.entry VALUES ('cancels/t1/01M7V484EE44XR18K3N8NM5E8E', 1261977, '\x7b226174223a313739353133333031393032317d');
INSERT INTO sawmill.entry VALUES ('shards/t1/again/0000', 3100284, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2270617373223a312c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t6/again/0000', 2045494, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t6/again/0001', 1800323, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t6/again/0002', 1887633, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t6/again/0003', 1563522, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t1/default/0000', 1673361, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t2/default/0000', 1302361, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t2/default/0001', 1740890, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t2/default/0002', 1603177, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t2/default/0003', 1742237, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t1/killed/0000', 1370981, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t8/killed/0000', 1303464, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t8/killed/0001', 1777254, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t8/killed/0002', 1623886, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t8/killed/0003', 1249107, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t1/line/0000', 1725372, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t4/line/0000', 1674096, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t4/line/0001', 1090762, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t4/line/0002', 1557690, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t4/line/0003', 2057948, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t1/lost/0000', 1503221, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t10/lost/0000', 1076209, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t10/lost/0001', 2021618, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t10/lost/0002', 1300679, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('shards/t10/lost/0003', 1095720, '\x7b22637572736f72223a22222c22746f6b656e223a302c22636c61696d73223a5b5d2c2274616c6c79223a7b22646f6e65223a302c2272657472696564223a302c2264656164223a302c2264726f70706564223a302c2263616e63656c6c6564223a307d2c2263616e63656c73223a317d');
INSERT INTO sawmill.entry VALUES ('pauses/t1/default', 1079410, '\x7b22706175736564223a747275657d');
INSERT INTO sawmill.entry VALUES ('schedules/t12/nightly', 1875150, '\x7b2263726f6e223a22302033202a202a202a222c227a6f6e65223a224575726f70652f4265726c696e222c227061796c6f6164223a7b2274657874223a22616c6c227d2c226b6579223a7b2274657874223a226b227d2c226d6973736564223a226f6e6365222c226c617374223a313739353133333031393130387d');
INSERT INTO sawmill.entry VALUES ('grants/5527a2b7be', 1703872, '\x7b226964223a2235353237613262376265222c22646967657374223a227368613235363a65316439353333623233326138363834373639656238346336633136636538313239663266373234663531626638313664656263343637656462366137383034222c22746f706963223a226f7264657273222c22616363657373223a227277222c2263726561746564223a313739353133333031393132372c226e6f7465223a227265636f72646564227d');


--
-- Data for Name: finished; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: known_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.known_1 VALUES ('01a1f644-11e1-55f0-9f3e-3385725676ff');


--
-- Data for Name: known_10; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: known_11; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: known_12; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: known_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.known_2 VALUES ('01a1f644-11aa-463f-e736-4193847b7d53');


--
-- Data for Name: known_3; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.known_3 VALUES ('01a1f644-1199-2b17-7241-be4d233139b8');


--
-- Data for Name: known_4; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: known_5; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.known_5 VALUES ('01a1f644-1199-2b17-7241-be4d233139b8');


--
-- Data for Name: known_6; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: known_7; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: known_8; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: known_9; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_10_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_10_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_10_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_11_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_11_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_11_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_12_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_12_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_12_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_1_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.message_1_0 VALUES (740, 1, 3, '01a1f644-1184-1e59-40e2-bde7bd6ea896', 1795133018500, NULL, false, '\x61', '\x000000046b696e64000000056669727374', '\x646f6e65', 1);
INSERT INTO sawmill.message_1_0 VALUES (742, 1, 2, '01a1f644-1199-35b2-7da9-8d44c6032869', 1795133018521, NULL, false, '\x62', NULL, '\x64656164', 1);
INSERT INTO sawmill.message_1_0 VALUES (744, 1, 3, '01a1f644-11aa-0213-eb30-b7d441004a3a', 1795133018538, NULL, false, '\x63', NULL, '\x6661696c6564', 1);
INSERT INTO sawmill.message_1_0 VALUES (862, 1, 3, '01a1f644-13ae-5b93-dc73-6f369ae825ef', 1795133019054, NULL, false, NULL, NULL, '\x77616974696e67', 1);


--
-- Data for Name: message_1_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_1_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_2_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_2_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_2_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_3_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.message_3_0 VALUES (767, 1, 0, '01a1f644-1199-2b17-7241-be4d233139b8', 1795133018521, NULL, true, '\x62', '\x0000000e7361776d696c6c2d6f726967696e0000001a30314d375634383443533650533756414344384b3330364133390000000f7361776d696c6c2d686973746f72790000005c5b7b22617474656d7074223a312c226174223a313739353133333031383636362c22776f726b6572223a22776f726b65722d65366663643264393765316563633066222c226572726f72223a226578697420636f6465203635227d5d000000107361776d696c6c2d617474656d70747300000001310000000e7361776d696c6c2d726561736f6e0000000c6578697420636f6465203635', '\x64656164', 1);


--
-- Data for Name: message_3_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_3_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_4_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_4_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_4_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_5_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.message_5_0 VALUES (784, 1, 0, '01a1f644-1199-2b17-7241-be4d233139b8', 1795133018521, NULL, true, '\x62', '\x0000000e7361776d696c6c2d6f726967696e0000001a30314d375634383443533650533756414344384b3330364133390000000f7361776d696c6c2d686973746f72790000005c5b7b22617474656d7074223a312c226174223a313739353133333031383734322c22776f726b6572223a22776f726b65722d65333036666365316337656430313432222c226572726f72223a226578697420636f6465203635227d5d000000107361776d696c6c2d617474656d70747300000001310000000e7361776d696c6c2d726561736f6e0000000c6578697420636f6465203635', '\x64656164', 1);


--
-- Data for Name: message_5_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_5_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_6_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_6_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_6_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_7_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_7_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_7_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_8_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_8_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_8_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_9_0; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_9_1; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: message_9_2; Type: TABLE DATA; Schema: sawmill; Owner: -
--



--
-- Data for Name: meta; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.meta VALUES (5, 0, '7710037312705523138');


--
-- Data for Name: topic; Type: TABLE DATA; Schema: sawmill; Owner: -
--

INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (1, 'orders', 4, 3153600000000, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (2, 'orders@default.retry', 4, 0, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (3, 'orders@default.dead', 1, 0, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (4, 'orders@line.retry', 4, 0, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (5, 'orders@line.dead', 1, 0, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (6, 'orders@again.retry', 4, 0, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (7, 'orders@again.dead', 1, 0, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (8, 'orders@killed.retry', 4, 0, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (9, 'orders@killed.dead', 1, 0, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (10, 'orders@lost.retry', 4, 0, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (11, 'orders@lost.dead', 1, 0, false, 0);
INSERT INTO sawmill.topic OVERRIDING SYSTEM VALUE VALUES (12, 'reports', 16, 86400000, false, 0);


--
-- Name: aside_10_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_10_seq_seq', 1, false);


--
-- Name: aside_11_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_11_seq_seq', 1, false);


--
-- Name: aside_12_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_12_seq_seq', 1, false);


--
-- Name: aside_1_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_1_seq_seq', 3, true);


--
-- Name: aside_2_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_2_seq_seq', 1, true);


--
-- Name: aside_3_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_3_seq_seq', 1, false);


--
-- Name: aside_4_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_4_seq_seq', 1, false);


--
-- Name: aside_5_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_5_seq_seq', 1, false);


--
-- Name: aside_6_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_6_seq_seq', 1, false);


--
-- Name: aside_7_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_7_seq_seq', 1, false);


--
-- Name: aside_8_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_8_seq_seq', 1, false);


--
-- Name: aside_9_seq_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.aside_9_seq_seq', 1, false);


--
-- Name: topic_id_seq; Type: SEQUENCE SET; Schema: sawmill; Owner: -
--

SELECT pg_catalog.setval('sawmill.topic_id_seq', 13, true);


--
-- Name: aside_10 aside_10_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_10
    ADD CONSTRAINT aside_10_pkey PRIMARY KEY (seq);


--
-- Name: aside_11 aside_11_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_11
    ADD CONSTRAINT aside_11_pkey PRIMARY KEY (seq);


--
-- Name: aside_12 aside_12_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_12
    ADD CONSTRAINT aside_12_pkey PRIMARY KEY (seq);


--
-- Name: aside_1 aside_1_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_1
    ADD CONSTRAINT aside_1_pkey PRIMARY KEY (seq);


--
-- Name: aside_2 aside_2_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_2
    ADD CONSTRAINT aside_2_pkey PRIMARY KEY (seq);


--
-- Name: aside_3 aside_3_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_3
    ADD CONSTRAINT aside_3_pkey PRIMARY KEY (seq);


--
-- Name: aside_4 aside_4_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_4
    ADD CONSTRAINT aside_4_pkey PRIMARY KEY (seq);


--
-- Name: aside_5 aside_5_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_5
    ADD CONSTRAINT aside_5_pkey PRIMARY KEY (seq);


--
-- Name: aside_6 aside_6_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_6
    ADD CONSTRAINT aside_6_pkey PRIMARY KEY (seq);


--
-- Name: aside_7 aside_7_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_7
    ADD CONSTRAINT aside_7_pkey PRIMARY KEY (seq);


--
-- Name: aside_8 aside_8_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_8
    ADD CONSTRAINT aside_8_pkey PRIMARY KEY (seq);


--
-- Name: aside_9 aside_9_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.aside_9
    ADD CONSTRAINT aside_9_pkey PRIMARY KEY (seq);


--
-- Name: finished finished_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.finished
    ADD CONSTRAINT finished_pkey PRIMARY KEY (id, reader);


--
-- Name: known_10 known_10_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_10
    ADD CONSTRAINT known_10_pkey PRIMARY KEY (id);


--
-- Name: known_11 known_11_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_11
    ADD CONSTRAINT known_11_pkey PRIMARY KEY (id);


--
-- Name: known_12 known_12_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_12
    ADD CONSTRAINT known_12_pkey PRIMARY KEY (id);


--
-- Name: known_1 known_1_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_1
    ADD CONSTRAINT known_1_pkey PRIMARY KEY (id);


--
-- Name: known_2 known_2_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_2
    ADD CONSTRAINT known_2_pkey PRIMARY KEY (id);


--
-- Name: known_3 known_3_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_3
    ADD CONSTRAINT known_3_pkey PRIMARY KEY (id);


--
-- Name: known_4 known_4_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_4
    ADD CONSTRAINT known_4_pkey PRIMARY KEY (id);


--
-- Name: known_5 known_5_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_5
    ADD CONSTRAINT known_5_pkey PRIMARY KEY (id);


--
-- Name: known_6 known_6_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_6
    ADD CONSTRAINT known_6_pkey PRIMARY KEY (id);


--
-- Name: known_7 known_7_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_7
    ADD CONSTRAINT known_7_pkey PRIMARY KEY (id);


--
-- Name: known_8 known_8_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_8
    ADD CONSTRAINT known_8_pkey PRIMARY KEY (id);


--
-- Name: known_9 known_9_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.known_9
    ADD CONSTRAINT known_9_pkey PRIMARY KEY (id);


--
-- Name: topic topic_name_key; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.topic
    ADD CONSTRAINT topic_name_key UNIQUE (name);


--
-- Name: topic topic_pkey; Type: CONSTRAINT; Schema: sawmill; Owner: -
--

ALTER TABLE ONLY sawmill.topic
    ADD CONSTRAINT topic_pkey PRIMARY KEY (id);


--
-- Name: aside_10_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_10_due_ms_seq_idx ON sawmill.aside_10 USING btree (due_ms, seq);


--
-- Name: aside_11_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_11_due_ms_seq_idx ON sawmill.aside_11 USING btree (due_ms, seq);


--
-- Name: aside_12_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_12_due_ms_seq_idx ON sawmill.aside_12 USING btree (due_ms, seq);


--
-- Name: aside_1_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_1_due_ms_seq_idx ON sawmill.aside_1 USING btree (due_ms, seq);


--
-- Name: aside_2_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_2_due_ms_seq_idx ON sawmill.aside_2 USING btree (due_ms, seq);


--
-- Name: aside_3_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_3_due_ms_seq_idx ON sawmill.aside_3 USING btree (due_ms, seq);


--
-- Name: aside_4_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_4_due_ms_seq_idx ON sawmill.aside_4 USING btree (due_ms, seq);


--
-- Name: aside_5_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_5_due_ms_seq_idx ON sawmill.aside_5 USING btree (due_ms, seq);


--
-- Name: aside_6_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_6_due_ms_seq_idx ON sawmill.aside_6 USING btree (due_ms, seq);


--
-- Name: aside_7_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_7_due_ms_seq_idx ON sawmill.aside_7 USING btree (due_ms, seq);


--
-- Name: aside_8_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_8_due_ms_seq_idx ON sawmill.aside_8 USING btree (due_ms, seq);


--
-- Name: aside_9_due_ms_seq_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX aside_9_due_ms_seq_idx ON sawmill.aside_9 USING btree (due_ms, seq);


--
-- Name: entry_newest; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE UNIQUE INDEX entry_newest ON sawmill.entry USING btree (key, version DESC);


--
-- Name: finished_at; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX finished_at ON sawmill.finished USING brin (at);


--
-- Name: message_10_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_10_0_shard_xid_n_idx ON sawmill.message_10_0 USING btree (shard, xid, n);


--
-- Name: message_10_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_10_1_shard_xid_n_idx ON sawmill.message_10_1 USING btree (shard, xid, n);


--
-- Name: message_10_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_10_2_shard_xid_n_idx ON sawmill.message_10_2 USING btree (shard, xid, n);


--
-- Name: message_11_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_11_0_shard_xid_n_idx ON sawmill.message_11_0 USING btree (shard, xid, n);


--
-- Name: message_11_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_11_1_shard_xid_n_idx ON sawmill.message_11_1 USING btree (shard, xid, n);


--
-- Name: message_11_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_11_2_shard_xid_n_idx ON sawmill.message_11_2 USING btree (shard, xid, n);


--
-- Name: message_12_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_12_0_shard_xid_n_idx ON sawmill.message_12_0 USING btree (shard, xid, n);


--
-- Name: message_12_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_12_1_shard_xid_n_idx ON sawmill.message_12_1 USING btree (shard, xid, n);


--
-- Name: message_12_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_12_2_shard_xid_n_idx ON sawmill.message_12_2 USING btree (shard, xid, n);


--
-- Name: message_1_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_1_0_shard_xid_n_idx ON sawmill.message_1_0 USING btree (shard, xid, n);


--
-- Name: message_1_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_1_1_shard_xid_n_idx ON sawmill.message_1_1 USING btree (shard, xid, n);


--
-- Name: message_1_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_1_2_shard_xid_n_idx ON sawmill.message_1_2 USING btree (shard, xid, n);


--
-- Name: message_2_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_2_0_shard_xid_n_idx ON sawmill.message_2_0 USING btree (shard, xid, n);


--
-- Name: message_2_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_2_1_shard_xid_n_idx ON sawmill.message_2_1 USING btree (shard, xid, n);


--
-- Name: message_2_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_2_2_shard_xid_n_idx ON sawmill.message_2_2 USING btree (shard, xid, n);


--
-- Name: message_3_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_3_0_shard_xid_n_idx ON sawmill.message_3_0 USING btree (shard, xid, n);


--
-- Name: message_3_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_3_1_shard_xid_n_idx ON sawmill.message_3_1 USING btree (shard, xid, n);


--
-- Name: message_3_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_3_2_shard_xid_n_idx ON sawmill.message_3_2 USING btree (shard, xid, n);


--
-- Name: message_4_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_4_0_shard_xid_n_idx ON sawmill.message_4_0 USING btree (shard, xid, n);


--
-- Name: message_4_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_4_1_shard_xid_n_idx ON sawmill.message_4_1 USING btree (shard, xid, n);


--
-- Name: message_4_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_4_2_shard_xid_n_idx ON sawmill.message_4_2 USING btree (shard, xid, n);


--
-- Name: message_5_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_5_0_shard_xid_n_idx ON sawmill.message_5_0 USING btree (shard, xid, n);


--
-- Name: message_5_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_5_1_shard_xid_n_idx ON sawmill.message_5_1 USING btree (shard, xid, n);


--
-- Name: message_5_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_5_2_shard_xid_n_idx ON sawmill.message_5_2 USING btree (shard, xid, n);


--
-- Name: message_6_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_6_0_shard_xid_n_idx ON sawmill.message_6_0 USING btree (shard, xid, n);


--
-- Name: message_6_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_6_1_shard_xid_n_idx ON sawmill.message_6_1 USING btree (shard, xid, n);


--
-- Name: message_6_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_6_2_shard_xid_n_idx ON sawmill.message_6_2 USING btree (shard, xid, n);


--
-- Name: message_7_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_7_0_shard_xid_n_idx ON sawmill.message_7_0 USING btree (shard, xid, n);


--
-- Name: message_7_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_7_1_shard_xid_n_idx ON sawmill.message_7_1 USING btree (shard, xid, n);


--
-- Name: message_7_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_7_2_shard_xid_n_idx ON sawmill.message_7_2 USING btree (shard, xid, n);


--
-- Name: message_8_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_8_0_shard_xid_n_idx ON sawmill.message_8_0 USING btree (shard, xid, n);


--
-- Name: message_8_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_8_1_shard_xid_n_idx ON sawmill.message_8_1 USING btree (shard, xid, n);


--
-- Name: message_8_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_8_2_shard_xid_n_idx ON sawmill.message_8_2 USING btree (shard, xid, n);


--
-- Name: message_9_0_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_9_0_shard_xid_n_idx ON sawmill.message_9_0 USING btree (shard, xid, n);


--
-- Name: message_9_1_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_9_1_shard_xid_n_idx ON sawmill.message_9_1 USING btree (shard, xid, n);


--
-- Name: message_9_2_shard_xid_n_idx; Type: INDEX; Schema: sawmill; Owner: -
--

CREATE INDEX message_9_2_shard_xid_n_idx ON sawmill.message_9_2 USING btree (shard, xid, n);


--
-- PostgreSQL database dump complete
--


