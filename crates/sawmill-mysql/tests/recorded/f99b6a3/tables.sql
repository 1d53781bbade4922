CREATE TABLE `sawmill_default_aside` (
  `seq` bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  `topic` bigint(20) unsigned NOT NULL,
  `shard` smallint(5) unsigned NOT NULL,
  `id` binary(16) NOT NULL,
  `created_ms` bigint(20) unsigned NOT NULL,
  `due_ms` bigint(20) unsigned DEFAULT NULL,
  `repeatable` tinyint(3) unsigned NOT NULL,
  `size` int(10) unsigned NOT NULL,
  `msg_key` varbinary(1024) DEFAULT NULL,
  `headers` mediumblob DEFAULT NULL,
  `payload` longblob NOT NULL,
  PRIMARY KEY (`seq`),
  KEY `due` (`topic`,`due_ms`,`seq`)
) ENGINE=InnoDB AUTO_INCREMENT=5 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

INSERT INTO `sawmill_default_aside` VALUES ('1', '1', '0', 0x01A1F644192C3733E3069E5483B1260F, '1795133020460', '4102444800000', '0', '6', 'd', NULL, 'later');

INSERT INTO `sawmill_default_aside` VALUES ('2', '1', '1', 0x01A1F6441935069F6E8D4EAE126730EE, '1795133020469', '4102444800000', '0', '9', NULL, NULL, 'cancelled');

INSERT INTO `sawmill_default_aside` VALUES ('3', '1', '3', 0x01A1F644193E7A22BD25F8F23732C518, '1795133020478', '4102444800000', '1', '34', NULL, '\0\0\0sawmill-unique\0\0\0once a century', 'unique');

INSERT INTO `sawmill_default_aside` VALUES ('4', '2', '3', 0x01A1F64419235B98C05723772ECD7FFC, '1795133020451', '4597682397914', '1', '260', 'c', 0x0000000E7361776D696C6C2D6F726967696E0000001A30314D37563438363933314B5358434135483447585A474B41540000000F7361776D696C6C2D686973746F7279000000B55B7B22617474656D7074223A312C226174223A313739353133333032303530342C22776F726B6572223A22776F726B65722D38656231343466363964386634353037222C226572726F72223A226578697420636F64652031227D2C7B22617474656D7074223A322C226174223A313739353133333032303530362C22776F726B6572223A22776F726B65722D38656231343466363964386634353037222C226572726F72223A226578697420636F64652031227D5D000000107361776D696C6C2D617474656D7074730000000132, 'failed');

CREATE TABLE `sawmill_default_entry` (
  `name` varbinary(512) NOT NULL,
  `version` bigint(20) unsigned NOT NULL,
  `value` mediumblob NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

INSERT INTO `sawmill_default_entry` VALUES ('cancels/t1/01M7V4869N0TFPX3AENR96EC7E', '229091866284', '{\"at\":1795133020643}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t1/keeper', '931250069654', '{\"group\":\"killed\",\"worker\":\"worker-6b3e88320ba873a3\"}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t10/keeper', '195964310527', '{\"group\":\"lost\",\"worker\":\"worker-2dc4ae3c8e555730\"}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t11/keeper', '990911290329', '{\"group\":\"lost\",\"worker\":\"worker-2dc4ae3c8e555730\"}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t2/keeper', '978558943090', '{\"group\":\"default\",\"worker\":\"worker-8eb144f69d8f4507\"}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t3/keeper', '551610499168', '{\"group\":\"default\",\"worker\":\"worker-8eb144f69d8f4507\"}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t4/keeper', '651849356184', '{\"group\":\"line\",\"worker\":\"worker-f0e6d44b681fb6cc\"}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t5/keeper', '755747740054', '{\"group\":\"line\",\"worker\":\"worker-f0e6d44b681fb6cc\"}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t6/keeper', '1028175325424', '{\"group\":\"again\",\"worker\":\"worker-29a9337a5f6f8612\"}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t7/keeper', '1070034015379', '{\"group\":\"again\",\"worker\":\"worker-29a9337a5f6f8612\"}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t8/keeper', '191290644938', '{\"group\":\"killed\",\"worker\":\"worker-6b3e88320ba873a3\"}');

INSERT INTO `sawmill_default_entry` VALUES ('duties/t9/keeper', '754508888218', '{\"group\":\"killed\",\"worker\":\"worker-6b3e88320ba873a3\"}');

INSERT INTO `sawmill_default_entry` VALUES ('grants/5dd9964320', '141579684433', '{\"id\":\"5dd9964320\",\"digest\":\"sha256:0b74cefe23eecd3f5a43a7b93c2463f9d68095b1218b4ce60d6450272c515639\",\"topic\":\"orders\",\"access\":\"rw\",\"created\":1795133020692,\"note\":\"recorded\"}');

INSERT INTO `sawmill_default_entry` VALUES ('groups/t1/again', '625184292694', '{\"ordered\":false,\"delivery\":\"at-least-once\"}');

INSERT INTO `sawmill_default_entry` VALUES ('groups/t1/default', '765335295354', '{\"ordered\":false,\"delivery\":\"at-least-once\"}');

INSERT INTO `sawmill_default_entry` VALUES ('groups/t1/killed', '1092812260362', '{\"ordered\":false,\"delivery\":\"at-least-once\"}');

INSERT INTO `sawmill_default_entry` VALUES ('groups/t1/line', '465273592803', '{\"ordered\":true,\"delivery\":\"at-least-once\"}');

INSERT INTO `sawmill_default_entry` VALUES ('groups/t1/lost', '643887263007', '{\"ordered\":false,\"delivery\":\"at-most-once\"}');

INSERT INTO `sawmill_default_entry` VALUES ('members/killed/worker-6b3e88320ba873a3', '365369846289', '{\"beat\":1,\"topics\":[\"t1\",\"t8\"],\"slots\":1,\"ttl_ms\":3000,\"beat_at\":1795133020603}');

INSERT INTO `sawmill_default_entry` VALUES ('members/lost/worker-2dc4ae3c8e555730', '170421978735', '{\"beat\":1,\"topics\":[\"t1\",\"t10\"],\"slots\":1,\"ttl_ms\":3000,\"beat_at\":1795133020625}');

INSERT INTO `sawmill_default_entry` VALUES ('pauses/t1/default', '735147083647', '{\"paused\":true}');

INSERT INTO `sawmill_default_entry` VALUES ('schedules/t12/nightly', '142666576341', '{\"cron\":\"0 3 * * *\",\"zone\":\"Europe/Berlin\",\"payload\":{\"text\":\"all\"},\"key\":{\"text\":\"k\"},\"missed\":\"once\",\"last\":1795133020682}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/again/0000', '669850088693', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"pass\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/again/0001', '861247078443', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"pass\":1,\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/again/0002', '350162639951', '{\"cursor\":\"\",\"token\":1,\"claims\":[],\"tally\":{\"done\":1,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"pass\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/again/0003', '809804619723', '{\"cursor\":\"\",\"token\":2,\"claims\":[],\"tally\":{\"done\":2,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"pass\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/default/0001', '447701647341', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/default/0002', '748109005164', '{\"cursor\":\"0000000000000001\",\"token\":1,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":1,\"dropped\":0,\"cancelled\":0}}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/default/0003', '776336592692', '{\"cursor\":\"0000000000000002\",\"token\":1,\"claims\":[],\"tally\":{\"done\":1,\"retried\":1,\"dead\":0,\"dropped\":0,\"cancelled\":0}}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/killed/0001', '517169530392', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/killed/0002', '835207882337', '{\"cursor\":\"0000000000000001\",\"token\":1,\"claims\":[{\"token\":1,\"owner\":\"worker-6b3e88320ba873a3\",\"from\":\"\",\"span\":\"000000000000000000000000000000010000000000000001\",\"count\":1}],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0}}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/line/0001', '698800019227', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/line/0002', '947072657483', '{\"cursor\":\"0000000000000001\",\"token\":1,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":1,\"dropped\":0,\"cancelled\":0}}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/line/0003', '614689274445', '{\"cursor\":\"0000000000000002\",\"token\":1,\"claims\":[{\"token\":1,\"from\":\"\",\"span\":\"000000000000000000000000000000020000000000000002\",\"count\":2,\"done\":[[0,0]],\"failures\":{\"1\":2}}],\"tally\":{\"done\":1,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0}}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/lost/0001', '883968868279', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t1/lost/0002', '92168859886', '{\"cursor\":\"0000000000000001\",\"token\":1,\"claims\":[{\"token\":1,\"owner\":\"worker-2dc4ae3c8e555730\",\"from\":\"\",\"span\":\"000000000000000000000000000000010000000000000001\",\"count\":1,\"once\":true}],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0}}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t10/lost/0000', '1081075322828', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t10/lost/0001', '754978167427', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t10/lost/0002', '1095925704785', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t10/lost/0003', '918772410418', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t2/default/0000', '259628754161', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t2/default/0001', '853875464495', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t2/default/0002', '467463672800', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t2/default/0003', '390450134521', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t4/line/0000', '161775596266', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t4/line/0001', '789758030840', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t4/line/0002', '478562878114', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t4/line/0003', '830420297985', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t6/again/0000', '297960141816', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t6/again/0001', '454774200556', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t6/again/0002', '662958246129', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t6/again/0003', '2776885256', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t8/killed/0000', '1042770886516', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t8/killed/0001', '514201268288', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t8/killed/0002', '27441106186', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('shards/t8/killed/0003', '121031844817', '{\"cursor\":\"\",\"token\":0,\"claims\":[],\"tally\":{\"done\":0,\"retried\":0,\"dead\":0,\"dropped\":0,\"cancelled\":0},\"cancels\":1}');

INSERT INTO `sawmill_default_entry` VALUES ('uniques/t1/005', '750859158863', '{\"names\":{\"once a century\":{\"id\":\"01M7V4869YF8HBT9FRY8VK5H8R\",\"sure\":true,\"settled\":[\"again\"]}}}');

CREATE TABLE `sawmill_default_finished` (
  `id` binary(16) NOT NULL,
  `reader` varbinary(255) NOT NULL,
  `at` timestamp NOT NULL DEFAULT current_timestamp(),
  PRIMARY KEY (`id`,`reader`),
  KEY `at` (`at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE `sawmill_default_leftover` (
  `topic` bigint(20) unsigned NOT NULL,
  PRIMARY KEY (`topic`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE `sawmill_default_memory` (
  `id` tinyint(3) unsigned NOT NULL,
  `life` bigint(20) unsigned NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=MEMORY DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci;

INSERT INTO `sawmill_default_memory` VALUES ('1', '9151988498676481385');

CREATE TABLE `sawmill_default_message` (
  `topic` bigint(20) unsigned NOT NULL,
  `shard` smallint(5) unsigned NOT NULL,
  `number` bigint(20) unsigned NOT NULL,
  `id` binary(16) NOT NULL,
  `created_ms` bigint(20) unsigned NOT NULL,
  `due_ms` bigint(20) unsigned DEFAULT NULL,
  `repeatable` tinyint(3) unsigned NOT NULL,
  `size` int(10) unsigned NOT NULL,
  `msg_key` varbinary(1024) DEFAULT NULL,
  `headers` mediumblob DEFAULT NULL,
  `payload` longblob NOT NULL,
  PRIMARY KEY (`topic`,`shard`,`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

INSERT INTO `sawmill_default_message` VALUES ('1', '2', '1', 0x01A1F644191A52024AD2A1EE62820A01, '1795133020442', NULL, '0', '5', 'b', NULL, 'dead');

INSERT INTO `sawmill_default_message` VALUES ('1', '2', '2', 0x01A1F64419F53FF4602F4E6F5ECFD5EE, '1795133020661', NULL, '0', '7', NULL, NULL, 'waiting');

INSERT INTO `sawmill_default_message` VALUES ('1', '3', '1', 0x01A1F64419127042F15005DB72FD07A2, '1795133020434', NULL, '0', '14', 'a', '\0\0\0kind\0\0\0first', 'done');

INSERT INTO `sawmill_default_message` VALUES ('1', '3', '2', 0x01A1F64419230CF3D628B1243BF84D5A, '1795133020451', NULL, '0', '7', 'c', NULL, 'failed');

INSERT INTO `sawmill_default_message` VALUES ('3', '0', '1', 0x01A1F644191A2F8EE9D5B06350757FC5, '1795133020442', NULL, '1', '195', 'b', '\0\0\0sawmill-origin\0\0\0\Z01M7V4868TA814NMN1XSH842G1\0\0\0sawmill-history\0\0\0\\[{\"attempt\":1,\"at\":1795133020498,\"worker\":\"worker-8eb144f69d8f4507\",\"error\":\"exit code 65\"}]\0\0\0sawmill-attempts\0\0\01\0\0\0sawmill-reason\0\0\0exit code 65', 'dead');

INSERT INTO `sawmill_default_message` VALUES ('5', '0', '1', 0x01A1F644191A2F8EE9D5B06350757FC5, '1795133020442', NULL, '1', '195', 'b', '\0\0\0sawmill-origin\0\0\0\Z01M7V4868TA814NMN1XSH842G1\0\0\0sawmill-history\0\0\0\\[{\"attempt\":1,\"at\":1795133020525,\"worker\":\"worker-f0e6d44b681fb6cc\",\"error\":\"exit code 65\"}]\0\0\0sawmill-attempts\0\0\01\0\0\0sawmill-reason\0\0\0exit code 65', 'dead');

CREATE TABLE `sawmill_default_meta` (
  `id` tinyint(3) unsigned NOT NULL,
  `namespace` varbinary(64) NOT NULL,
  `version` int(10) unsigned NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

INSERT INTO `sawmill_default_meta` VALUES ('1', 'default', '3');

CREATE TABLE `sawmill_default_once` (
  `topic` bigint(20) unsigned NOT NULL,
  `id` binary(16) NOT NULL,
  `token` bigint(20) unsigned NOT NULL,
  PRIMARY KEY (`topic`,`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

INSERT INTO `sawmill_default_once` VALUES ('1', 0x01A1F644193E7A22BD25F8F23732C518, '15347603290793356273');

INSERT INTO `sawmill_default_once` VALUES ('2', 0x01A1F64419235B98C05723772ECD7FFC, '14838753173813327782');

INSERT INTO `sawmill_default_once` VALUES ('3', 0x01A1F644191A2F8EE9D5B06350757FC5, '16290527923462745911');

INSERT INTO `sawmill_default_once` VALUES ('5', 0x01A1F644191A2F8EE9D5B06350757FC5, '11560990431622535859');

CREATE TABLE `sawmill_default_server` (
  `id` tinyint(3) unsigned NOT NULL,
  `life` bigint(20) unsigned NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

INSERT INTO `sawmill_default_server` VALUES ('1', '9151988498676481385');

CREATE TABLE `sawmill_default_shard` (
  `topic` bigint(20) unsigned NOT NULL,
  `number` smallint(5) unsigned NOT NULL,
  `last` bigint(20) unsigned NOT NULL,
  `kept` bigint(20) unsigned NOT NULL,
  `largest` bigint(20) unsigned NOT NULL,
  PRIMARY KEY (`topic`,`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

INSERT INTO `sawmill_default_shard` VALUES ('1', '0', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('1', '1', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('1', '2', '2', '2', '7');

INSERT INTO `sawmill_default_shard` VALUES ('1', '3', '2', '2', '14');

INSERT INTO `sawmill_default_shard` VALUES ('2', '0', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('2', '1', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('2', '2', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('2', '3', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('3', '0', '1', '1', '195');

INSERT INTO `sawmill_default_shard` VALUES ('4', '0', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('4', '1', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('4', '2', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('4', '3', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('5', '0', '1', '1', '195');

INSERT INTO `sawmill_default_shard` VALUES ('6', '0', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('6', '1', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('6', '2', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('6', '3', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('7', '0', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('8', '0', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('8', '1', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('8', '2', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('8', '3', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('9', '0', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('10', '0', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('10', '1', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('10', '2', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('10', '3', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('11', '0', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '0', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '1', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '2', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '3', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '4', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '5', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '6', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '7', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '8', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '9', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '10', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '11', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '12', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '13', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '14', '0', '0', '0');

INSERT INTO `sawmill_default_shard` VALUES ('12', '15', '0', '0', '0');

CREATE TABLE `sawmill_default_topic` (
  `id` bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  `name` varbinary(255) NOT NULL,
  `shards` smallint(5) unsigned NOT NULL,
  `retention_ms` bigint(20) unsigned NOT NULL,
  `drops_unread` tinyint(3) unsigned NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=14 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;

INSERT INTO `sawmill_default_topic` VALUES ('1', 'orders', '4', '3153600000000', '0');

INSERT INTO `sawmill_default_topic` VALUES ('2', 'orders@default.retry', '4', '0', '0');

INSERT INTO `sawmill_default_topic` VALUES ('3', 'orders@default.dead', '1', '0', '0');

INSERT INTO `sawmill_default_topic` VALUES ('4', 'orders@line.retry', '4', '0', '0');

INSERT INTO `sawmill_default_topic` VALUES ('5', 'orders@line.dead', '1', '0', '0');

INSERT INTO `sawmill_default_topic` VALUES ('6', 'orders@again.retry', '4', '0', '0');

INSERT INTO `sawmill_default_topic` VALUES ('7', 'orders@again.dead', '1', '0', '0');

INSERT INTO `sawmill_default_topic` VALUES ('8', 'orders@killed.retry', '4', '0', '0');

INSERT INTO `sawmill_default_topic` VALUES ('9', 'orders@killed.dead', '1', '0', '0');

INSERT INTO `sawmill_default_topic` VALUES ('10', 'orders@lost.retry', '4', '0', '0');

INSERT INTO `sawmill_default_topic` VALUES ('11', 'orders@lost.dead', '1', '0', '0');

INSERT INTO `sawmill_default_topic` VALUES ('12', 'reports', '16', '86400000', '0');

